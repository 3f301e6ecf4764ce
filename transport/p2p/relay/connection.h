// One connection of a link through a relay. It dials the relay by TCP, answers the relay's greeting
// (transport/relay/ticket.h), and waits until the relay joins it to a connection of the peer. Then
// messages follow.
//
// Threads: all on the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/address.h"
#include "base/event_loop.h"
#include "transport/p2p/stream/stream_connection.h"
#include "transport/relay/ticket.h"

namespace longhaul::transport::relay {

class RelayedConnection : public stream::StreamConnection {
 public:
  using Joined = std::function<void(const std::shared_ptr<RelayedConnection>&)>;
  // Dials the relay at `address` at once, and shows the ticket of `way`. `joined` may be empty; it
  // runs at most once, when the relay has joined this connection to the peer's. Errors reach
  // OnClosed. The connection adds itself to `table`, and removes itself when it has closed.
  static std::shared_ptr<RelayedConnection> Start(
      const std::shared_ptr<EventLoop>& loop, const std::shared_ptr<stream::ConnectionTable>& table,
      const HostPort& address, longhaul::relay::Way way, longhaul::relay::Side side, Joined joined);

 private:
  RelayedConnection(std::shared_ptr<EventLoop> loop, std::shared_ptr<stream::ConnectionTable> table,
                    const std::string& address, longhaul::relay::Way way,
                    longhaul::relay::Side side, Joined joined);
  void OnConnected() override {}  // the relay speaks first
  void OnGreeting() override;
  void OnClosing() override;
  void TakeGreeting();
  // Takes the RelayWord that follows the answer to the greeting.
  void TakeWord();

  const longhaul::relay::Way way_;
  const longhaul::relay::Side side_;
  Joined joined_;
  EventLoop::TimerId greeting_timer_;
  std::string greeting_;  // the part of the relay's greeting that has arrived
  bool answered_ = false;
};

}  // namespace longhaul::transport::relay
