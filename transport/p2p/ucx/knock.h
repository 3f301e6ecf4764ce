// Waits until a peer's port answers this host. A port that does not admit the host yet
// (port_filter.h) drops the packet that asks for a connection, and TCP repeats the packet only
// after a second. A knock asks again much sooner, by plain connections that say nothing.
//
// Threads: all on the loop.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "transport/p2p/ucx/socket_address.h"

namespace longhaul::transport::ucx {

class Knock : public std::enable_shared_from_this<Knock> {
 public:
  // Knocks at `address` until the port answers, also with a refusal, or until Stop. `done` runs
  // once after an answer, never inside this call, and not after Stop.
  static std::shared_ptr<Knock> Start(std::shared_ptr<EventLoop> loop, const SocketAddress& address,
                                      std::function<void()> done);
  // Closes the connections. Does nothing if `done` has run.
  void Stop();

 private:
  Knock(std::shared_ptr<EventLoop> loop, const SocketAddress& address, std::function<void()> done)
      : loop_(std::move(loop)), address_(address), done_(std::move(done)) {}
  void Try();
  void Answered();

  const std::shared_ptr<EventLoop> loop_;
  const SocketAddress address_;
  std::function<void()> done_;
  std::vector<UniqueFd> dialled_;
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace longhaul::transport::ucx
