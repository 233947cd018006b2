// SPDX-License-Identifier: Apache-2.0
// crossdevice-doctor as users start it: its report, and what it says where something falls short.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

#include "bench/running_job.h"
#include "doctor/finding.h"
#include "doctor/probe.h"
#include "doctor/report.h"

namespace crossdevice::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

/// The doctor in an environment with these variables, and without any that would change what it finds.
Outcome run_doctor(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables = {}) {
  std::vector<std::string> all{"-u", "CROSSDEVICE_RANK", "-u", "CROSSDEVICE_LAUNCHER"};
  all.insert(all.end(), variables.begin(), variables.end());
  all.emplace_back(CROSSDEVICE_DOCTOR_PROGRAM);
  all.insert(all.end(), arguments.begin(), arguments.end());
  run::RunningJob job(all, "/usr/bin/env");
  Outcome result;
  result.code = job.finish();
  result.out = job.out;
  result.err = job.err;
  return result;
}

/// Those of some probes, by --json.
Findings find(const std::string& only, const std::vector<std::string>& variables, int code) {
  const Outcome result = run_doctor({"--json", "--only", only}, variables);
  EXPECT_EQ(result.code, code) << result.out << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("healthy").get<bool>(), code == 0);
  return findings_from_json(report.at("findings").dump());
}

const Finding& named(const Findings& findings, const std::string& name) {
  static const Finding kNone{.name = "no such finding"};
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.name == name; });
  EXPECT_NE(found, findings.end()) << name;
  return found == findings.end() ? kNone : *found;
}

void expect_failure(const Finding& finding, const std::string& text, const std::string& advice) {
  EXPECT_EQ(finding.status, Status::FAILURE) << finding.text;
  EXPECT_THAT(finding.text, HasSubstr(text));
  EXPECT_THAT(finding.advice, HasSubstr(advice));
}

TEST(DoctorTest, EveryProbeReportsAndWhateverFallsShortComesWithAdvice) {
  const Outcome result = run_doctor({"--json"});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("program"), "crossdevice-doctor");
  EXPECT_TRUE(report.at("healthy").get<bool>());
  const Findings findings = findings_from_json(report.at("findings").dump());
  std::set<std::string> names;
  for (const Finding& each : findings) {
    names.insert(each.name);
    EXPECT_FALSE(each.text.empty()) << each.name;
    const bool falls_short = each.status == Status::SHORTFALL || each.status == Status::FAILURE;
    EXPECT_EQ(each.advice.empty(), !falls_short) << each.name << ": " << each.text;
  }
  for (const char* const name : {"processor",
                                 "memory",
                                 "open files",
                                 "address space",
                                 "locked memory",
                                 "environment",
                                 "launcher",
                                 "shared memory",
                                 "huge pages",
                                 "/dev/shm",
                                 "process_vm_readv",
                                 "loopback",
                                 "network",
                                 "host devices",
                                 "CUDA",
                                 "NCCL",
                                 "UCX",
                                 "copies",
                                 "all-reduce, one process",
                                 "all-reduce, batch",
                                 "all-reduce, GPUs",
                                 "all-reduce, NCCL",
                                 "all-reduce, NCCL workers",
                                 "all-reduce, shared memory",
                                 "all-reduce, own memory",
                                 "all-reduce, TCP",
                                 "all-reduce, TCP with TLS",
                                 "all-reduce, two levels"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  EXPECT_GE(findings.size(), all_probes().size());
  for (const Probe& probe : all_probes()) {
    EXPECT_EQ(names.count(probe.finding), 1U) << probe.name << " calls its finding otherwise";
  }
  // Each GPU has a line of its own.
  const auto num_gpus = named(findings, "GPUs").facts.at("count").get<std::size_t>();
  EXPECT_EQ(names.count("GPU:0"), num_gpus > 0 ? 1U : 0U);
  EXPECT_EQ(named(findings, "CUDA").status == Status::ABSENT, num_gpus == 0);
  for (const char* const path :
       {"all-reduce, one process", "all-reduce, batch", "all-reduce, shared memory",
        "all-reduce, own memory", "all-reduce, TCP", "all-reduce, TCP with TLS",
        "all-reduce, two levels", "copies"}) {
    EXPECT_EQ(named(findings, path).status, Status::OK) << named(findings, path).text;
  }
  EXPECT_THAT(named(findings, "all-reduce, two levels").text, HasSubstr("4 workers"));
}

TEST(DoctorTest, PeopleGetALineForEachAndWhatItComesTo) {
  const Outcome result = run_doctor({"--only", "launcher,network"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("crossdevice-doctor 0."), HasSubstr("  launcher  "),
                                HasSubstr("  network  "), HasSubstr("All that is required works"),
                                Not(HasSubstr("  memory  ")), Not(HasSubstr("\033"))));
}

TEST(DoctorTest, LaunchersThatDisagree) {
  const Findings findings = find("launcher",
                                 {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=3", "RANK=0",
                                  "WORLD_SIZE=2", "MASTER_ADDR=host-a", "MASTER_PORT=2222"},
                                 1);
  expect_failure(named(findings, "launcher"), "Open MPI says rank 1 of 3", "CROSSDEVICE_LAUNCHER=");
}

TEST(DoctorTest, ALauncherThatDoesNotSayWhereTheChiefIs) {
  const Findings findings = find("launcher", {"PMI_RANK=1", "PMI_SIZE=2"}, 1);
  expect_failure(named(findings, "launcher"), "rank 1 of 2", "CROSSDEVICE_CHIEF_ADDRESS=HOST:PORT");
}

TEST(DoctorTest, UnderALauncherItSaysWhoThisIs) {
  const Findings findings =
      find("launcher", {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=host-a", "MASTER_PORT=2222"}, 0);
  EXPECT_THAT(named(findings, "launcher").text,
              AllOf(HasSubstr("rank 1 of 2"), HasSubstr("torchrun")));
}

TEST(DoctorTest, AnNcclLibraryThatIsNotThere) {
  const Findings findings = find("nccl", {"CROSSDEVICE_NCCL_LIBRARY=/no/libnccl.so.2"}, 1);
  expect_failure(named(findings, "NCCL"), "/no/libnccl.so.2", "unset it");
}

TEST(DoctorTest, AVariableThatHoldsWhatItMayNot) {
  const Findings findings = find("copies", {"CROSSDEVICE_CPU_DEVICES=many"}, 1);
  EXPECT_EQ(findings.size(), 2U);  // the cause, too, though nobody has asked for it
  expect_failure(named(findings, "environment"), "CROSSDEVICE_CPU_DEVICES", "correct the variable");
  EXPECT_EQ(named(findings, "copies").text, "not run: see environment");
}

/// No advice about drivers, firewalls and containers.
TEST(DoctorTest, AVariableThatHoldsWhatItMayNotIsTheOneCause) {
  const std::vector<std::string> variables{"CROSSDEVICE_NUM_THREADS=0"};
  const Outcome result = run_doctor({}, variables);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 of what is required does not work"),
                                HasSubstr("- environment: correct the variable"),
                                Not(HasSubstr("nvidia-smi")), Not(HasSubstr("firewall"))));
  const Outcome json = run_doctor({"--json"}, variables);
  const Findings findings =
      findings_from_json(nlohmann::json::parse(json.out).at("findings").dump());
  for (const Probe& probe : all_probes()) {
    const auto is_its = [&](const Finding& each) { return each.name == probe.finding; };
    const auto found = std::find_if(findings.begin(), findings.end(), is_its);
    ASSERT_NE(found, findings.end()) << probe.name;
    EXPECT_EQ(found->status == Status::SKIPPED, probe.settings == Settings::READ) << probe.name;
    EXPECT_EQ(found->status == Status::FAILURE, probe.settings == Settings::JUDGED) << found->text;
  }
}

TEST(DoctorTest, AVariableThatNobodyReads) {
  const Findings findings =
      find("environment", {"CROSSDEVICE_NUM_THREAD=3", "CROSSDEVICE_STRICT=0"}, 0);
  const Finding& unknown = named(findings, "unknown variable");
  EXPECT_EQ(unknown.status, Status::SHORTFALL);
  EXPECT_THAT(unknown.text, HasSubstr("CROSSDEVICE_NUM_THREAD "));
  EXPECT_THAT(unknown.advice, HasSubstr("unset CROSSDEVICE_NUM_THREAD"));
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(),
                          [](const Finding& each) { return each.name == "unknown variable"; }),
            1);
}

/// Not one that is there, and not one with a name of its own for each process.
TEST(DoctorTest, ATimelineThatIsAskedForIsLeftToThePrograms) {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("doctor_trace_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string path = (folder / "t.json").string();
  std::ofstream(path) << "the program's";
  for (const std::string& name : {path, path + ".%p"}) {
    const Findings findings = find("environment,copies,all-reduce-hosts,all-reduce-shared-memory",
                                   {"CROSSDEVICE_TRACE=" + name}, 0);
    EXPECT_THAT(named(findings, "environment").text, HasSubstr("CROSSDEVICE_TRACE=" + name));
    EXPECT_EQ(named(findings, "all-reduce, one process").status, Status::OK);
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), "the program's");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  fs::remove_all(folder);
}

TEST(DoctorTest, ASecretThatTheLibraryWouldRefuse) {
  const std::string path = ::testing::TempDir() + "doctor_secret_" + std::to_string(::getpid());
  const std::vector<std::string> variables{"CROSSDEVICE_SECRET_FILE=" + path};
  const auto secret = [&](const std::string& text, int code) {
    std::ofstream(path) << text;
    EXPECT_EQ(::chmod(path.c_str(), 0600), 0);
    return named(find("environment", variables, code), "secret file");
  };
  EXPECT_EQ(secret("hush, nobody hears\n", 0).status, Status::OK);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  expect_failure(named(find("environment", variables, 1), "secret file"), "owner only",
                 "chmod 600 " + path);
  expect_failure(secret("", 1), "holds a secret of 0 bytes", "same file on every machine");
  expect_failure(secret("hush\n", 1), "of 16 to 4096", "/dev/urandom");
  expect_failure(secret(std::string(4097, 'x'), 1), "larger than 4096 bytes", "/dev/urandom");
  ::unlink(path.c_str());
  expect_failure(named(find("environment", variables, 1), "secret file"), path,
                 "same file on every machine");
  expect_failure(
      named(find("environment", {"CROSSDEVICE_SECRET_FILE=/dev/null"}, 1), "secret file"),
      "no regular file", "same file on every machine");
}

TEST(DoctorTest, ATuningFileThatRankZeroWouldRefuse) {
  const std::string path = ::testing::TempDir() + "doctor_tuning_" + std::to_string(::getpid());
  const std::vector<std::string> variables{"CROSSDEVICE_TUNING_FILE=" + path};
  expect_failure(named(find("environment", variables, 1), "tuning file"), "cannot be read",
                 "unset CROSSDEVICE_TUNING_FILE");
  std::ofstream(path) << R"({"all_reduce": [{"algorithm": "rung"}]})";
  expect_failure(named(find("environment", variables, 1), "tuning file"), "not \"rung\"",
                 "correct the file");
  std::ofstream(path) << R"({"all_reduce": [{"algorithm": "ring"}]})";
  EXPECT_EQ(named(find("environment", variables, 0), "tuning file").status, Status::OK);
  ::unlink(path.c_str());
}

TEST(DoctorTest, FilesThatCouldNotBeWrittenInTheEnd) {
  const Findings findings =
      find("environment",
           {"CROSSDEVICE_TRACE=/no/folder/t.json", "CROSSDEVICE_FLIGHT_RECORD=/no/folder/%p"}, 0);
  for (const char* const name : {"CROSSDEVICE_TRACE", "CROSSDEVICE_FLIGHT_RECORD"}) {
    EXPECT_EQ(named(findings, name).status, Status::SHORTFALL);
    EXPECT_THAT(named(findings, name).text, HasSubstr("No such file or directory"));
    EXPECT_THAT(named(findings, name).advice, HasSubstr(std::string("set ") + name));
  }
  const std::string here = ::testing::TempDir();
  const Findings folders =
      find("environment", {"CROSSDEVICE_TRACE=" + here, "CROSSDEVICE_FLIGHT_RECORD=" + here}, 0);
  for (const char* const name : {"CROSSDEVICE_TRACE", "CROSSDEVICE_FLIGHT_RECORD"}) {
    EXPECT_THAT(named(folders, name).text, HasSubstr("Is a directory"));
  }
  EXPECT_EQ(find("environment",
                 {"CROSSDEVICE_TRACE=" + here + "t.%p.json",
                  "CROSSDEVICE_FLIGHT_RECORD=" + here + "%p/record"},
                 0)
                .size(),
            1U);
}

TEST(DoctorTest, BothNamesOfTheLogLevelAreKnown) {
  const Findings findings =
      find("environment", {"CROSSDEVICE_LOG=info", "CROSSDEVICE_LOG_LEVEL=warning"}, 0);
  EXPECT_EQ(findings.size(), 1U);
}

TEST(DoctorTest, AnInterfaceThatHasNoAddress) {
  const Findings findings = find("network", {"CROSSDEVICE_SOCKET_IFNAME=none7"}, 1);
  expect_failure(named(findings, "network"), "none7", "unset CROSSDEVICE_SOCKET_IFNAME");
}

TEST(DoctorTest, TooFewDescriptors) {
  run::RunningJob job({"-c", "ulimit -n 64; exec \"$0\" --only limits", CROSSDEVICE_DOCTOR_PROGRAM},
                      "/bin/sh");
  EXPECT_EQ(job.finish(), 1) << job.err;
  EXPECT_THAT(job.out,
              AllOf(HasSubstr("FAIL"), HasSubstr("- open files: "),
                    HasSubstr("1 of what is required does not work"), HasSubstr("ulimit -n 4096")));
}

/// Neither a process nor a wait is left: RunningJob looks.
TEST(DoctorTest, WhatDoesNotEndIsStopped) {
  const Outcome result =
      run_doctor({"--json", "--timeout-seconds", "0.001", "--only", "all-reduce-tcp"});
  EXPECT_EQ(result.code, 1) << result.err;
  const auto report = nlohmann::json::parse(result.out);
  const Findings findings = findings_from_json(report.at("findings").dump());
  ASSERT_EQ(findings.size(), 1U);
  expect_failure(findings[0], "has not ended after 0.001 s", "firewall");
  EXPECT_THAT(findings[0].text, HasSubstr("--timeout-seconds"));
  EXPECT_THAT(findings[0].advice, HasSubstr("--probe all-reduce-tcp"));
  EXPECT_EQ(findings[0].name, "all-reduce, TCP");  // as where it works
}

/// More than an error of the library's.
TEST(DoctorTest, AWorkerThatCrashesIsAProbeThatCrashes) {
  const std::vector<std::string> preload{"LD_PRELOAD=" CROSSDEVICE_CRASHING_WORKER};
  const Findings findings = find("all-reduce-shared-memory", preload, 1);
  ASSERT_EQ(findings.size(), 1U);
  expect_failure(findings[0], "was ended by signal 11 (SEGV)", "loopback");
}

TEST(DoctorTest, WhatIsTakenOnlyWhenAskedForIsNoFailureWhereItIsNot) {
  const auto report = [](const std::vector<std::string>& variables) {
    return run_doctor({"--json", "--timeout-seconds", "0.001", "--only", "all-reduce-ucx"},
                      variables);
  };
  const Outcome unasked = report({"-u", "CROSSDEVICE_TRANSPORT"});
  EXPECT_EQ(unasked.code, 0) << unasked.out;
  const Findings findings =
      findings_from_json(nlohmann::json::parse(unasked.out).at("findings").dump());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].name, "all-reduce, UCX");
  EXPECT_EQ(findings[0].status, Status::SHORTFALL);
  EXPECT_EQ(report({"CROSSDEVICE_TRANSPORT=ucx"}).code, 1);
}

TEST(DoctorProbesTest, EachSaysWhatToDoAndFailuresWeighWhatTheyCost) {
  for (const Probe& probe : all_probes()) {
    EXPECT_FALSE(std::string(probe.finding).empty()) << probe.name;
    EXPECT_FALSE(std::string(probe.advice).empty()) << probe.name;
  }
  const auto status_of = [](const char* name, End end) {
    const Findings broken{{.name = "x", .status = Status::FAILURE}};
    return weighed(*find_probe(name), end, broken)[0].status;
  };
  EXPECT_EQ(status_of("all-reduce-tcp", End::ERROR), Status::FAILURE);
  // The library's kernels reduce where NCCL says that it cannot, but nobody survives its later errors or its crash, or sees its wrong sums.
  EXPECT_EQ(status_of("all-reduce-nccl", End::REFUSAL), Status::SHORTFALL);
  EXPECT_EQ(status_of("all-reduce-nccl", End::ERROR), Status::FAILURE);
  EXPECT_EQ(status_of("all-reduce-nccl", End::CRASH), Status::FAILURE);
  EXPECT_EQ(status_of("all-reduce-nccl", End::REPORT), Status::FAILURE);
  EXPECT_EQ(status_of("foreign-memory", End::CRASH), Status::SHORTFALL);
}

/// Who reads the report finds there what --only takes; that --json has a finding of each by that name, EveryProbeReports... shows.
TEST(DoctorTest, HelpNamesEveryProbeAndWhatItFinds) {
  const Outcome result = run_doctor({"--help"});
  EXPECT_EQ(result.code, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  while (std::getline(lines, line) && !line.starts_with("Probes, ")) continue;
  for (const Probe& probe : all_probes()) {  // in the order of the report, and no others
    ASSERT_TRUE(std::getline(lines, line)) << result.out;
    std::istringstream words(line);
    std::string name;
    std::string finding;
    words >> name >> std::ws;
    std::getline(words, finding);
    EXPECT_EQ(name, probe.name);
    EXPECT_EQ(finding, probe.finding);
  }
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line, "");
}

TEST(DoctorTest, WrongArguments) {
  const Outcome result = run_doctor({"--only", "nccl,ncl"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("there is no probe 'ncl'"), HasSubstr("shared-memory")));
  EXPECT_EQ(run_doctor({"--timeout-seconds", "0"}).code, 2);
}

TEST(DoctorReportTest, FindingsSurviveTheirWayThroughJson) {
  const Finding finding{.name = "a \"name\"",
                        .status = Status::SHORTFALL,
                        .text = "text\nof two lines",
                        .advice = "do it",
                        .facts = {{"bytes", 7}}};
  const Findings back =
      findings_from_json(nlohmann::ordered_json::array({to_json(finding)}).dump());
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].name, finding.name);
  EXPECT_EQ(back[0].status, finding.status);
  EXPECT_EQ(back[0].text, finding.text);
  EXPECT_EQ(back[0].advice, finding.advice);
  EXPECT_EQ(back[0].facts, finding.facts);
  EXPECT_TRUE(findings_from_json("[]").empty());
  for (const char* const text :
       {"", "{", "[7]", R"([{"name":"x"}])",
        R"([{"name":"x","status":"fine","text":"","advice":"","facts":{}}])"}) {
    EXPECT_THROW((void)findings_from_json(text), std::runtime_error) << text;
  }
}

TEST(DoctorReportTest, TheSameAdviceIsGivenOnce) {
  Findings findings(3);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    findings[i] = {.name = "part " + std::to_string(i),
                   .status = Status::FAILURE,
                   .text = "broken",
                   .advice = i == 2 ? "turn it round" : "turn it on"};
  }
  findings.push_back(
      {.name = "shadow", .status = Status::SHORTFALL, .text = "x", .advice = "more light"});
  EXPECT_EQ(report_end(findings, Colours::NO),
            "\n3 of what is required do not work:\n  - part 0: turn it on\n  - part 2: turn it "
            "round\nCould be better:\n  - shadow: more light\n");
  EXPECT_FALSE(is_healthy(findings));
  findings.erase(findings.begin(), findings.begin() + 3);
  EXPECT_TRUE(is_healthy(findings));
  EXPECT_EQ(report_end(findings, Colours::NO),
            "\nAll that is required works. Could be better:\n  - shadow: more light\n");
  EXPECT_EQ(report_end({}, Colours::NO), "\nAll that is required works.\n");
}

/// Every text begins in the same column.
TEST(DoctorReportTest, NoNameIsTooLong) {
  for (const Probe& probe : all_probes()) {
    EXPECT_EQ(report_line({.name = probe.finding, .text = "text"}, Colours::NO).find("text"), 35U)
        << probe.finding;
  }
}

TEST(DoctorReportTest, LongLinesAreCutAtBlanks) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "word" + std::to_string(i) + " ";
  const std::string line =
      report_line({.name = "x", .status = Status::OK, .text = text}, Colours::NO);
  std::istringstream lines(line);
  std::size_t count = 0;
  for (std::string each; std::getline(lines, each); ++count) {
    EXPECT_LE(each.size(), 120U);
    if (count > 0) {
      EXPECT_EQ(each.find_first_not_of(" "), 35U);
    }
  }
  EXPECT_GE(count, 3U);
}

}  // namespace
}  // namespace crossdevice::doctor
