// One connection of a link through a relay. It dials the relay by TCP, answers the relay's greeting
// (transport/relay/ticket.h), and waits until the relay joins it to a connection of the peer. Then
// frames follow one after another. A frame is a link header and its payload.
//
// Threads: all on the loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/relay/resolve.h"
#include "transport/relay/ticket.h"

namespace longhaul::transport::relay {

class RelayedConnection;

// The connections of a backend, and the resolver that they share.
struct ConnectionTable {
  std::shared_ptr<Resolver> resolver;
  internal::ConnectionSet<RelayedConnection> connections;
};

class RelayedConnection : public internal::Connection,
                          public std::enable_shared_from_this<RelayedConnection> {
 public:
  using Joined = std::function<void(const std::shared_ptr<RelayedConnection>&)>;
  // Dials the relay at `address` at once, and shows the ticket of `way`. `joined` may be empty; it
  // runs at most once, when the relay has joined this connection to the peer's. Errors reach
  // OnClosed. The connection adds itself to `table`, and removes itself when it has closed.
  static std::shared_ptr<RelayedConnection> Start(std::shared_ptr<EventLoop> loop,
                                                  std::shared_ptr<ConnectionTable> table,
                                                  const HostPort& address, longhaul::relay::Way way,
                                                  longhaul::relay::Side side, Joined joined);

  void SetEvents(std::shared_ptr<internal::ConnectionEvents> events) override;
  void Send(std::span<const std::byte> header, const FrameView& payload, SendDone done) override;
  void Close() override { CloseWith(absl::CancelledError("closed on this side")); }
  std::string Describe() const override { return description_; }

 private:
  enum class State : uint8_t { kLookingUp, kConnecting, kConnected, kAnswered, kOpen, kClosed };
  struct Waiting {
    std::span<const std::byte> header;
    FrameView payload;
    SendDone done;
    size_t size() const { return header.size() + payload.size(); }
  };

  RelayedConnection(std::shared_ptr<EventLoop> loop, std::shared_ptr<ConnectionTable> table,
                    std::string address, longhaul::relay::Way way, longhaul::relay::Side side,
                    Joined joined);
  void Connect(const StatusOr<SocketAddress>& address);
  void OnEvent(uint32_t events);
  void FinishConnect();
  void TakeGreeting();
  // Takes the RelayWord that follows the answer to the greeting.
  void TakeWord();
  void TakeFrames();
  // Delivers the frames in the buffer that have arrived whole. False: the connection is closed, or
  // is_garbled_.
  bool Deliver();
  void Flush();
  void FlushSoon();
  void WatchFor(uint32_t events);
  void CloseWith(const Status& reason);

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<ConnectionTable> table_;
  const std::string address_;
  const longhaul::relay::Way way_;
  const longhaul::relay::Side side_;
  const std::string description_;
  Joined joined_;
  UniqueFd fd_;
  State state_ = State::kLookingUp;
  EventLoop::TimerId greeting_timer_;
  uint32_t watched_ = 0;
  std::shared_ptr<internal::ConnectionEvents> events_;
  std::string greeting_;           // the part of the relay's greeting that has arrived
  std::vector<std::byte> buffer_;  // received bytes are [0, held_)
  size_t held_ = 0;
  bool is_garbled_ = false;  // the received bytes are not a frame; nothing after them can be read
  std::deque<Waiting> waiting_;
  size_t sent_of_first_ = 0;
  bool flush_posted_ = false;
};

}  // namespace longhaul::transport::relay
