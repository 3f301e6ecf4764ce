// Changes two settings of the cells of a training run to the settings of a better plan. A cell is
// one stage of one replica. Depth is a cell's number of microbatches in flight. A cell with lead n
// holds back gradient i until activation i + n - 1 has arrived (run/schedule/policy.h). Pure; not
// thread-safe.
//
// In no step may a cell's lead be larger than the depth of an earlier stage of the same replica:
// the two cells would wait for each other. Cells begin a step at different times, so the change has
// three phases. First depths grow, then leads change, then depths shrink. Cells that are at most
// one phase apart never wait for each other.
//
// A cell applies a requested setting when its next step begins, and then reports this step. The
// next phase begins when all cells have reported. A cell begins no step before all cells of its
// replica have done their part of the previous step. So in each step, cells of a replica are at
// most one phase apart.
//
//   SettingChange change(SettingsOf(plan));
//   change.Begin(SettingsOf(better), most_depths);
//   while (change.Advance(id)) {
//     ask every cell for *change.AskedOf(place); call change.Said(...) for the report of each
//   }
//
// Vectors and `place` are in the order of Assignment::cells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A setting that a cell has, or that is requested of it.
struct AskedSetting {
  uint32_t depth = 0;
  std::optional<uint32_t> activation_lead;  // nullopt: the cell keeps its lead, which is unknown
  friend bool operator==(const AskedSetting&, const AskedSetting&) = default;
};
std::vector<AskedSetting> SettingsOf(const Plan& plan);  // in the order of its cells

class SettingChange {
 public:
  SettingChange() = default;
  // `held`: the present settings of all cells; empty: unknown.
  explicit SettingChange(std::vector<AskedSetting> held) : held_(std::move(held)) {}

  // Begins a change to `target`; no other change may be under way. `most_depths`: the maximum depth
  // of each cell, which is used while leads change if the present settings are unknown.
  void Begin(std::vector<AskedSetting> target, std::vector<uint32_t> most_depths);
  bool IsUnderWay() const { return phase_ != Phase::kNone; }
  // Goes to the next phase in which some cell changes. This phase gets the number `id`, which cells
  // repeat in their reports. False: the whole change is done.
  bool Advance(uint64_t id);
  // Returns what is requested of the cell with this index; null: no change is under way, or the
  // cell has confirmed.
  const AskedSetting* AskedOf(size_t place) const;
  uint64_t id() const { return id_; }
  // Takes the report that a cell has applied the settings of phase `id`, from `step` on. True: all
  // cells have reported; call Advance next.
  bool Said(size_t place, uint64_t id, uint64_t step);
  // Returns the step since which all cells have the settings of the last phase.
  uint64_t since() const;

  // Returns the first cell whose lead may be larger than the depth of an earlier stage. Counts both
  // the old and the requested setting of each cell. Null: no such cell, or settings are unknown.
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
