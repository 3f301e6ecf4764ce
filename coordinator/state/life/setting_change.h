// Changes the depths (microbatches in flight) and leads of a running epoch from its cells' settings
// to its plan's settings, in phases. A cell in one phase is safe beside a cell in the phase before.
// Pure; not thread-safe.
//
// No cell may wait for more activations than a cell above it keeps in flight, in any step, or both
// would wait for each other. Cells begin a step at different times. So in the first phase depths
// grow, in the second leads change, in the third depths shrink. A cell applies a requested setting
// when its next step begins, and then reports it. It begins no step before all other cells of its
// replica have done their part of the previous step, and waits for activations of these cells only.
// So when all have reported, no cell will begin a step while a cell that it waits for is a phase
// behind.
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

// The setting of a cell, or a requested one.
struct AskedSetting {
  uint32_t depth = 0;
  std::optional<uint32_t> activation_lead;  // nullopt: the cell's present lead, which is unknown
  friend bool operator==(const AskedSetting&, const AskedSetting&) = default;
};
std::vector<AskedSetting> SettingsOf(const Plan& plan);  // in the order of its cells

class SettingChange {
 public:
  SettingChange() = default;
  // All cells have `held`; empty: their settings are unknown.
  explicit SettingChange(std::vector<AskedSetting> held) : held_(std::move(held)) {}

  // Begins a change to `target`; no other change may be under way. `most_depths`: the maximum depth
  // of each cell; if the cells' settings are unknown, depths go to this maximum before leads
  // change.
  void Begin(std::vector<AskedSetting> target, std::vector<uint32_t> most_depths);
  bool IsUnderWay() const { return phase_ != Phase::kNone; }
  // Goes to the next phase with a request; cells know the phase by `id`. False: the change is done.
  bool Advance(uint64_t id);
  // Null: nothing is requested of this cell, or it has confirmed the request.
  const AskedSetting* AskedOf(size_t place) const;
  uint64_t id() const { return id_; }
  // The cell has applied phase `id` from `step` on. True: every cell has; call Advance next.
  bool Said(size_t place, uint64_t id, uint64_t step);
  // The step since which all cells have the last requested settings.
  uint64_t since() const;

  // Returns the first cell that might wait for more activations than a cell above it has in flight,
  // whichever cells have already changed. Null: there is none.
  const Cell* FirstUnsafe(const Assignment& assignment) const;

 private:
  enum class Phase : uint8_t { kNone, kRaise, kLead, kSettle };
  std::vector<AskedSetting> SettingsOfPhase() const;

  std::vector<AskedSetting> held_;  // settings of all cells; empty: unknown
  std::vector<AskedSetting> target_;
  std::vector<uint32_t> most_depths_;
  Phase phase_ = Phase::kNone;
  // The current phase.
  uint64_t id_ = 0;
  std::vector<AskedSetting> asked_;
  std::vector<std::optional<uint64_t>> since_;  // by index of the cell
};

}  // namespace longhaul::coordinator
