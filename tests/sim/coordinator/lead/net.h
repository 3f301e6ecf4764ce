// The network of a simulation: which of its places hear each other, and how messages travel. Each
// pair of places has two directions, which are cut by themselves. Not thread-safe. All times are
// virtual.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"
#include "tests/sim/coordinator/random.h"
#include "tests/sim/coordinator/timeline.h"

namespace longhaul::coordinator::sim {

class Net {
 public:
  // Probabilities for each message, and how long it travels at most.
  struct Habits {
    double lost = 0, repeated = 0;
    bool reorders = false;  // a message may overtake an earlier one
    absl::Duration slowest = absl::Milliseconds(40);
    absl::Duration latest = absl::Seconds(2);  // a repetition
  };

  Net(Timeline* timeline, Random* random) : timeline_(timeline), random_(random) {}
  Habits habits;

  // Runs `arrive` when the message arrives; never if it is lost. `exact`: like a call over TCP, it
  // is neither repeated nor overtaken.
  void Send(size_t from, size_t to, std::function<void()> arrive, bool exact = false) {
    if (IsCut(from, to) || random_->Chance(habits.lost)) return;
    const bool twice = !exact && random_->Chance(habits.repeated);
    if (twice) Travel(from, to, arrive, habits.latest, /*in_order=*/false);
    Travel(from, to, std::move(arrive), habits.slowest, /*in_order=*/exact || !habits.reorders);
  }

  // Nothing of `from` arrives at `to` for so long.
  void Cut(size_t from, size_t to, absl::Duration length) {
    MonoTime& until = cut_until_[{from, to}];
    until = std::max(until, timeline_->now() + length);
  }
  bool IsCut(size_t from, size_t to) const {
    const auto cut = cut_until_.find({from, to});
    return cut != cut_until_.end() && cut->second > timeline_->now();
  }
  void Heal() { cut_until_.clear(); }

 private:
  void Travel(size_t from, size_t to, std::function<void()> arrive, absl::Duration slowest,
              bool in_order) {
    MonoTime at = timeline_->now() + random_->Between(absl::Milliseconds(1), slowest);
    if (in_order) {
      MonoTime& newest = newest_[{from, to}];
      at = newest = std::max(newest, at);
    }
    timeline_->After(at - timeline_->now(), [this, from, to, arrive = std::move(arrive)] {
      if (!IsCut(from, to)) arrive();
    });
  }

  Timeline* const timeline_;
  Random* const random_;
  std::map<std::pair<size_t, size_t>, MonoTime> cut_until_, newest_;
};

}  // namespace longhaul::coordinator::sim
