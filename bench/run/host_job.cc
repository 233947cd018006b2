// SPDX-License-Identifier: Apache-2.0
#include "run/host_job.h"

#include <stdexcept>

#include <fmt/format.h>

#include "run/fields.h"

namespace crossdevice::run {
namespace {

constexpr double kMaxSeconds = 1e6;

/// Not a number is no more than anything.
bool is_time(double seconds) { return seconds >= 0 && seconds <= kMaxSeconds; }

/// Errors   also BadFields.
HostJob job_of(FieldReader fields) {
  take_version(fields);
  HostJob job;
  for (int* number : {&job.first_rank, &job.num_local_workers, &job.num_workers}) {
    *number = fields.take_number<int>();
  }
  job.grace_seconds = fields.take_number<double>();
  job.silence_seconds = fields.take_number<double>();
  job.is_plain = fields.take() == "1";
  job.keeps_going = fields.take() == "1";
  for (std::string* text : {&job.chief_address, &job.secret, &job.directory}) *text = fields.take();
  job.variables = fields.take_list();
  job.command = fields.take_list();
  const bool has_ranks = job.first_rank >= 0 && job.num_local_workers >= 1 &&
                         job.num_workers >= job.num_local_workers &&
                         job.first_rank <= job.num_workers - job.num_local_workers;
  const bool has_times = is_time(job.grace_seconds) && is_time(job.silence_seconds);
  if (!has_ranks || !has_times || job.command.empty() || !fields.is_at_end()) {
    throw BadFields("no job");
  }
  return job;
}

}  // namespace

std::string encode(const HostJob& job) {
  std::string fields;
  append_version(fields);
  for (const int number : {job.first_rank, job.num_local_workers, job.num_workers}) {
    append_field(fields, std::to_string(number));
  }
  append_field(fields, fmt::format("{}", job.grace_seconds));
  append_field(fields, fmt::format("{}", job.silence_seconds));
  append_field(fields, job.is_plain ? "1" : "0");
  append_field(fields, job.keeps_going ? "1" : "0");
  for (const std::string& text : {job.chief_address, job.secret, job.directory}) {
    append_field(fields, text);
  }
  append_fields(fields, job.variables);
  append_fields(fields, job.command);
  std::string bytes;
  append_field(bytes, fields);
  return bytes;
}

HostJob receive_host_job(int fd) {
  try {
    return job_of(FieldReader(receive_message(fd)));
  } catch (const BadFields&) {
    throw std::runtime_error("--host-agent: standard input holds no job");
  }
}

}  // namespace crossdevice::run
