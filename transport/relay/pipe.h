// Joins two connections: bytes that one end sends go to the other, in both directions. A direction
// holds at most kPipeBufferBytes; while the receiver takes nothing, the sender is not read.
//
// Threads: all on the loop. The descriptors stay the caller's and must live until `done` has run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"

namespace longhaul::relay {

inline constexpr size_t kPipeBufferBytes = size_t{64} << 10;

class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  // `carried` gets the number of bytes passed on. `done` runs once, when either end has gone and
  // the other has taken the remaining bytes or took too long; never inside Start.
  Pipe(std::shared_ptr<EventLoop> loop, int one, int other, std::function<void(size_t)> carried,
       std::function<void()> done);
  void Start();
  // After Stop neither `carried` nor `done` runs.
  void Stop();

 private:
  struct Direction {
    int from = -1, to = -1;
    std::vector<std::byte> buffer = std::vector<std::byte>(kPipeBufferBytes);
    size_t begin = 0, end = 0;  // of the waiting bytes in the buffer
    bool ended = false;         // no more bytes will arrive
    bool Waits() const { return begin < end; }
    bool MayRead() const { return !ended && !Waits(); }
  };
  // Moves as many bytes as possible. False: the pipe has broken.
  bool Move(Direction& direction);
  void OnEvent(int fd, uint32_t events);
  // Watches each descriptor for the events that can be used now.
  void WatchBoth();
  void End();

  const std::shared_ptr<EventLoop> loop_;
  std::function<void(size_t)> carried_;
  std::function<void()> done_;
  std::array<Direction, 2> directions_;
  std::array<uint32_t, 2> watched_{};  // events of directions_[i].from; 0: not watched
  std::optional<EventLoop::TimerId> drain_timer_;
};

}  // namespace longhaul::relay
