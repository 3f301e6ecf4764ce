#include "deploy/cluster/relay/delay_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longhaul::relay {
namespace {

// The points between which the delay's curve is straight lie this many jitters apart: it then falls
// by at most half of the time that passes, and no packet overtakes another.
constexpr int kJittersBetweenPoints = 4;

// Evenly from -1 to 1, always the same for the same numbers (splitmix64's finisher).
double Draw(uint64_t seed, uint64_t path, uint64_t point) {
  uint64_t x = seed ^ (path * 0x9E3779B97F4A7C15u) ^ (point * 0xD1B54A32D192ED03u);
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

}  // namespace

QueueCounts& QueueCounts::operator+=(const QueueCounts& other) {
  arrived += other.arrived;
  released += other.released;
  lost += other.lost;
  overflowed += other.overflowed;
  return *this;
}

bool HeldBytes::Take(size_t bytes) {
  size_t now = now_;
  do {
    if (bytes > most_ || now > most_ - bytes) return false;
  } while (!now_.compare_exchange_weak(now, now + bytes));
  return true;
}

bool DelayQueue::Later(const Held& a, const Held& b) {
  return std::pair(a.release, a.number) > std::pair(b.release, b.number);
}

void DelayQueue::Configure(uint32_t workers, std::vector<LinkQuality> paths,
                           std::vector<bool> connected) {
  LH_CHECK(paths.size() == size_t{workers} * workers && connected.size() == workers,
           "{} paths and {} workers are not those of {} workers", paths.size(), connected.size(),
           workers);
  if (workers != workers_) {
    Drop();
    paths_.assign(paths.size(), Path{});
    workers_ = workers;
  }
  for (size_t i = 0; i < paths.size(); ++i) paths_[i].quality = paths[i];
  connected_ = std::move(connected);
}

void DelayQueue::Drop() {
  counts_.lost += heap_.size();
  for (const Held& held : heap_) held_.GiveBack(held.frame.capacity);
  heap_.clear();
}

absl::Duration DelayQueue::DelayAt(uint32_t path, const LinkQuality& quality, MonoTime time) const {
  if (quality.jitter == absl::ZeroDuration()) return quality.delay;
  const double spacing =
      kJittersBetweenPoints * static_cast<double>(absl::ToInt64Nanoseconds(quality.jitter));
  const double position = static_cast<double>(time.nanoseconds()) / spacing;
  const auto point = static_cast<uint64_t>(position);
  const double part = position - static_cast<double>(point);
  const double wander = (1 - part) * Draw(seed_, path, point) + part * Draw(seed_, path, point + 1);
  return quality.delay + quality.jitter * wander;
}

void DelayQueue::Admit(uint32_t from, uint32_t to, Frame frame, MonoTime arrived) {
  ++counts_.arrived;
  LH_CHECK(from < workers_ && to < workers_, "a frame from {} to {} of {} workers", from, to,
           workers_);
  const uint32_t index = from * workers_ + to;
  Path& path = paths_[index];
  const bool lost = path.quality.loss > 0 &&
                    std::uniform_real_distribution<double>(0, 1)(chance_) < path.quality.loss;
  if (lost || !connected_[from] || !connected_[to]) {
    ++counts_.lost;
    return;
  }
  if (!held_.Take(frame.capacity)) {
    ++counts_.overflowed;
    return;
  }
  // Also where the delay was just lowered.
  const MonoTime release =
      std::max(path.last_release, arrived + DelayAt(index, path.quality, arrived));
  path.last_release = release;
  heap_.push_back({release, next_number_++, from, to, std::move(frame)});
  std::push_heap(heap_.begin(), heap_.end(), Later);
}

std::optional<MonoTime> DelayQueue::NextRelease() const {
  if (heap_.empty()) return std::nullopt;
  return heap_.front().release;
}

std::optional<DelayQueue::Due> DelayQueue::Release(MonoTime now) {
  while (!heap_.empty() && heap_.front().release <= now) {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    Held held = std::move(heap_.back());
    heap_.pop_back();
    held_.GiveBack(held.frame.capacity);
    if (!connected_[held.from] || !connected_[held.to]) {
      ++counts_.lost;
      continue;
    }
    ++counts_.released;
    return Due{held.to, std::move(held.frame)};
  }
  return std::nullopt;
}

}  // namespace longhaul::relay
