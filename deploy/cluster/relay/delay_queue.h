// Holds the frames in flight between the workers of a cluster: delays them, and drops some. Pure:
// the caller passes the time, and randomness comes from a seed.
//
// Frames from one worker to another keep their order. With jitter, the delay varies slowly between
// delay - jitter and delay + jitter. So consecutive frames have nearly the same delay, as behind a
// queue.
//
// Not thread-safe, except HeldBytes. Workers are counted from 0 here.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "base/clock.h"
#include "run/file/link_quality.h"

namespace longhaul::relay {

struct Frame {
  std::unique_ptr<std::byte[]> bytes;
  uint32_t size = 0;      // bytes of the frame
  uint32_t capacity = 0;  // allocated bytes
};

struct QueueCounts {
  uint64_t arrived = 0;  // frames; each is then released, lost, overflowed or in flight
  uint64_t released = 0;
  uint64_t lost = 0;        // by `loss`, by Configure, or to or from a disconnected worker
  uint64_t overflowed = 0;  // no room for more bytes in flight
  QueueCounts& operator+=(const QueueCounts& other);
};

// Limits the bytes in flight of several queues together. Thread-safe.
class HeldBytes {
 public:
  explicit HeldBytes(size_t most) : most_(most) {}
  // Reserves `bytes`. False: there is not enough room, and nothing was reserved.
  bool Take(size_t bytes);
  void GiveBack(size_t bytes) { now_ -= bytes; }
  size_t now() const { return now_; }  // bytes that are reserved

 private:
  const size_t most_;
  std::atomic<size_t> now_ = 0;
};

class DelayQueue {
 public:
  // `held` must outlive this object. Each frame in flight reserves its capacity in `held`.
  DelayQueue(uint64_t seed, HeldBytes* held) : chance_(seed), seed_(seed), held_(*held) {}
  DelayQueue(const DelayQueue&) = delete;
  DelayQueue& operator=(const DelayQueue&) = delete;
  ~DelayQueue() { Drop(); }

  // Sets the quality of every path, `paths[from * workers + to]`, and which workers are connected,
  // `connected[worker]`. Before the first call there are no workers. Frames in flight keep their
  // release time. At that time, a frame from or to a disconnected worker is dropped. A change of
  // the number of workers drops all frames.
  void Configure(uint32_t workers, std::vector<LinkQuality> paths, std::vector<bool> connected);

  // Takes a frame that arrived at the time `arrived`, or drops it: by chance, for a disconnected
  // worker, or for lack of room. `arrived` must not decrease from frame to frame of a path.
  void Admit(uint32_t from, uint32_t to, Frame frame, MonoTime arrived);

  // Returns the time at which the next frame is due; nullopt: nothing is in flight.
  std::optional<MonoTime> NextRelease() const;
  struct Due {
    uint32_t to = 0;
    Frame frame;
  };
  // Removes and returns the earliest frame that is due at `now`; nullopt: no frame is due.
  std::optional<Due> Release(MonoTime now);

  const QueueCounts& counts() const { return counts_; }

 private:
  struct Path {
    LinkQuality quality;
    MonoTime last_release;
  };
  struct Held {
    MonoTime release;
    uint64_t number;
    uint32_t from, to;
    Frame frame;
  };
  static bool Later(const Held& a, const Held& b);
  void Drop();  // drops frames in flight
  absl::Duration DelayAt(uint32_t path, const LinkQuality& quality, MonoTime time) const;

  std::mt19937_64 chance_;
  const uint64_t seed_;
  HeldBytes& held_;
  uint32_t workers_ = 0;
  std::vector<Path> paths_;
  std::vector<bool> connected_;
  std::vector<Held> heap_;  // the earliest release first
  uint64_t next_number_ = 0;
  QueueCounts counts_;
};

}  // namespace longhaul::relay
