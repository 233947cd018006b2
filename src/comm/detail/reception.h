// SPDX-License-Identifier: Apache-2.0
/// Where strangers are received: each gets a challenge and has some seconds for its first frame. What they are is somebody else's to find out.
///
/// Whoever comes takes a place, and there are so many. A place is free again at once when its stranger turns out to be one of the job, and otherwise no sooner
/// than kLeastTime after it was taken and when its connection is closed, which that of who speaks before it is spoken to is at once; while all are taken, the others
/// wait in the kernel, where they cost neither a descriptor nor an answer. Then:
///   - Nobody is kept out for good. The kernel hands out those who wait in the order in which they came, and whoever has not said who it is makes room, but not
///     before it had the time for it that its link needs (StrangerPlaces).
///   - Strangers cost the job so many handshakes per second and no more, however many they are and whatever they say. Where there are more than some, and for
///     kWary after one was turned away, those who have come meanwhile are taken in together, kBunch after the last ones: being woken for each would cost the
///     job more than they do, and without TLS most of those who speak before they are spoken to have spoken by then, or gone. One of the job comes in that much later.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>

#include "comm/detail/control_connection.h"
#include "comm/detail/patient_acceptor.h"
#include "comm/detail/stranger_log.h"
#include "comm/detail/stranger_places.h"
#include "comm/detail/tcp_socket.h"

namespace crossdevice::detail {

/// Threads  the io_context's alone (open() before it runs, too).
class Reception {
 public:
  using Connection = std::shared_ptr<ControlConnection>;
  /// A stranger's answer to `challenge`. An exception that leaves it ends the connection.
  using OnAnswer =
      std::function<void(const Connection&, const Nonce& challenge, const Frame& answer)>;

  static constexpr std::size_t kPlaces = 128;
  static constexpr std::chrono::milliseconds kLeastTime = StrangerPlaces::kLeastStay;
  static constexpr std::chrono::milliseconds kBunch{20};
  static constexpr std::chrono::milliseconds kWary{1000};

  Reception(asio::io_context& io, OnAnswer on_answer)
      : io_(io), on_answer_(std::move(on_answer)), look_timer_(io) {}
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  /// Frames of strangers may have that many bytes. `door`: what the log calls this, "the chief (rank 0)". `tls`: what is said is encrypted; null: it is not.
  void open(asio::ip::tcp::acceptor acceptor, std::string door,
            std::size_t max_frame_bytes = kMaxStrangerFrameBytes,
            std::shared_ptr<const TlsKey> tls = nullptr);
  /// Receives nobody any more, and sends those away whose answer has not come.
  void close();
  /// Whether somebody is here whose answer has not come, or who has not been told yet why it was refused.
  [[nodiscard]] bool has_strangers() const;
  /// A handler may have thrown before it waited for the next stranger: from now on somebody does again.
  void go_on();
  /// To be called from `on_answer`: the stranger may not come in. Says so on the log; `reason`: as StrangerLog's.
  void refuse(const Connection& stranger, std::string_view reason, std::string_view text);
  /// What is said of those who encrypt where this one does not, or the other way round; empty: nobody of that kind has come.
  [[nodiscard]] const std::string& misfit() const { return misfit_; }
  /// Why whoever comes now cannot be taken in, though there is a place: what this process lacks; empty: nothing.
  [[nodiscard]] const std::string& want() const { return want_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    asio::ip::tcp::endpoint from;
    StrangerPlaces::Place place;
    Connection stranger{};                        // none: it has been refused, or has gone
    std::shared_ptr<asio::steady_timer> limit{};  // of its time
    std::weak_ptr<ControlConnection> refused{};   // while it is told why
    /// Nobody is there then. Why somebody was refused is on its way already, unless the stranger takes nothing.
    void send_away();
    [[nodiscard]] bool is_empty() const { return !stranger && refused.expired(); }
  };
  using Places = std::list<Place>;  // the longest taken first

  void await_next();
  void look_at(Clock::time_point when);
  void look();
  [[nodiscard]] std::optional<Clock::time_point> make_room();
  void receive(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& from, Arrival arrival);
  void greet(asio::ip::tcp::socket socket, const asio::ip::tcp::endpoint& from);
  void hear(const Connection& stranger, const Nonce& challenge, const Frame& answer);
  [[nodiscard]] Places::iterator place_of(const Connection& stranger);
  void hear_end(const Connection& stranger, const std::string& why);
  void note_stranger(const asio::ip::tcp::endpoint& from, std::string_view reason,
                     std::string_view text);
  void note_closing(const Place& place);
  void turn_away(Place& place, std::string_view reason, std::string_view text);

  asio::io_context& io_;
  OnAnswer on_answer_;
  StrangerLog log_;
  std::size_t max_frame_bytes_ = kMaxStrangerFrameBytes;
  std::shared_ptr<const TlsKey> tls_;
  std::string misfit_;
  std::string want_;
  std::optional<PatientAcceptor> acceptor_;
  StrangerPlaces stranger_places_;  // outlives places_
  Places places_;
  asio::steady_timer look_timer_;  // waits, or else the acceptor does
  bool is_waiting_ = false;        // one of them
  bool has_put_off_ = false;       // a look that came late
  Clock::time_point wary_until_{};
};

}  // namespace crossdevice::detail
