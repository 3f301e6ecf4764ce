// A change of the depths (microbatches in flight) and leads of a running epoch, from those of its
// cells to those of its plan, in phases. A cell in one phase is safe beside a cell in the phase
// before. Pure; not thread-safe.
//
// No cell may wait for more activations than a cell above it keeps in flight, in any step, or both
// would wait for each other; and cells begin a step at times of their own. So in the first phase
// depths grow, in the second leads change, in the third depths shrink. A cell takes what it is
// asked for when its next step begins, and says so then. It begins no step before all others of its
// replica have done their part of the one before, and waits for activations of these alone; so when
// all have said so, no cell will begin a step in which one that it waits for is a phase behind.
//
//   SettingChange change(SettingsOf(plan));
//   change.Begin(SettingsOf(better), most_depths);
//   while (change.Advance(id)) { ask every cell for *change.AskedOf(place); Said(...) of each }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::coordinator {

// What a cell runs with, or is asked to.
struct AskedSetting {
  uint32_t depth = 0;
  std::optional<uint32_t> activation_lead;  // nullopt: what it has, which is not known
  friend bool operator==(const AskedSetting&, const AskedSetting&) = default;
};
std::vector<AskedSetting> SettingsOf(const Plan& plan);  // as its cells

class SettingChange {
 public:
  SettingChange() = default;
  // All cells have `held`; empty: what they have is not known.
  explicit SettingChange(std::vector<AskedSetting> held) : held_(std::move(held)) {}

  // Towards `target`. `most_depths`: what each cell may have at most; where it is not known what
  // the cells have, depths go that far before leads change. None may be under way.
  void Begin(std::vector<AskedSetting> target, std::vector<uint32_t> most_depths);
  bool IsUnderWay() const { return phase_ != Phase::kNone; }
  // To the next phase that asks for something, which cells know by `id`. False: the change is done.
  bool Advance(uint64_t id);
  // Null: nothing is asked of this cell, or it has said that it has it.
  const AskedSetting* AskedOf(size_t place) const;
  uint64_t id() const { return id_; }
  // From `step` on the cell has what phase `id` asks for. True: every cell has; Advance follows.
  bool Said(size_t place, uint64_t id, uint64_t step);
  // The step since which all cells have what was asked for last.
  uint64_t since() const;

  // The first cell that might wait for more activations than a cell above it has in flight,
  // whichever cells have changed already. Null: there is none.
  const Cell* FirstUnsafe(const Assignment& assignment) const;

 private:
  enum class Phase : uint8_t { kNone, kRaise, kLead, kSettle };
  std::vector<AskedSetting> SettingsOfPhase() const;

  std::vector<AskedSetting> held_;  // by all cells; empty: not known
  std::vector<AskedSetting> target_;
  std::vector<uint32_t> most_depths_;
  Phase phase_ = Phase::kNone;
  // The phase under way.
  uint64_t id_ = 0;
  std::vector<AskedSetting> asked_;
  std::vector<std::optional<uint64_t>> since_;  // by place
};

}  // namespace longhaul::coordinator
