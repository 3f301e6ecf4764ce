// Joins two connections: the bytes that one end sends go to the other end, in both directions. Each
// direction has a buffer of kPipeBufferBytes. While bytes in it wait for the receiver, nothing is
// read from the sender.
//
// Threads: all on the loop. The caller owns the descriptors and keeps them open until `done` has
// run or Stop was called.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/event_loop.h"
#include "transport/relay/congestion.h"

namespace longhaul::relay {

inline constexpr size_t kPipeBufferBytes = size_t{64} << 10;

class Pipe : public std::enable_shared_from_this<Pipe> {
 public:
  // Joins the sockets `one` and `other`. `carried` gets the number of bytes each time that bytes
  // were passed on. `done` runs once, never inside Start: when a connection breaks, or after one
  // end has closed. In the second case the pipe first sends the remaining bytes to the other end,
  // which takes at most 5 s. Neither callback may be empty.
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
    SendingLine line;           // of `to`
    bool Waits() const { return begin < end; }
    bool MayRead() const { return !ended && !Waits(); }
  };
  // Moves bytes from one end to the other until a call would block. False: the pipe has broken.
  bool Move(Direction& direction);
  void OnEvent(int fd, uint32_t events);
  // Watches each descriptor for the events that this pipe can use now.
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
