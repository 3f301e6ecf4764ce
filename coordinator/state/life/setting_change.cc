#include "coordinator/state/life/setting_change.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace longhaul::coordinator {

std::vector<AskedSetting> SettingsOf(const Plan& plan) {
  std::vector<AskedSetting> settings;
  for (const Cell& cell : plan.assignment.cells) {
    settings.push_back({cell.setting.depth, cell.setting.activation_lead});
  }
  return settings;
}

void SettingChange::Begin(std::vector<AskedSetting> target, std::vector<uint32_t> most_depths) {
  LH_CHECK(!IsUnderWay(), "a change of settings begins while another one is under way");
  LH_CHECK(most_depths.size() == target.size() && (held_.empty() || held_.size() == target.size()),
           "{} cells have settings, {} are to have others, {} have a most depth", held_.size(),
           target.size(), most_depths.size());
  target_ = std::move(target);
  most_depths_ = std::move(most_depths);
  since_.clear();
}

std::vector<AskedSetting> SettingChange::SettingsOfPhase() const {
  std::vector<AskedSetting> settings = target_;
  if (phase_ == Phase::kSettle) return settings;
  const bool known = !held_.empty();
  for (size_t i = 0; i < settings.size(); ++i) {
    settings[i].depth = known ? std::max(settings[i].depth, held_[i].depth) : most_depths_[i];
    if (phase_ == Phase::kRaise) {
      settings[i].activation_lead = known ? held_[i].activation_lead : std::nullopt;
    }
  }
  return settings;
}

bool SettingChange::Advance(uint64_t id) {
  if (!asked_.empty()) held_ = std::exchange(asked_, {});
  while (phase_ != Phase::kSettle) {
    phase_ = static_cast<Phase>(static_cast<int>(phase_) + 1);
    asked_ = SettingsOfPhase();
    if (asked_ == held_) continue;
    id_ = id;
    since_.assign(asked_.size(), std::nullopt);
    return true;
  }
  phase_ = Phase::kNone;
  asked_.clear();
  return false;
}

const AskedSetting* SettingChange::AskedOf(size_t place) const {
  return IsUnderWay() && !since_[place] ? &asked_[place] : nullptr;
}

bool SettingChange::Said(size_t place, uint64_t id, uint64_t step) {
  if (!IsUnderWay() || id != id_) return false;
  since_[place] = step;
  return std::ranges::all_of(since_, [](const auto& one) { return one.has_value(); });
}

uint64_t SettingChange::since() const {
  uint64_t step = 0;
  for (const std::optional<uint64_t>& since : since_) step = std::max(step, since.value_or(0));
  return step;
}

const Cell* SettingChange::FirstUnsafe(const Assignment& assignment) const {
  if (held_.empty()) return nullptr;
  const std::vector<AskedSetting>& asked = asked_.empty() ? held_ : asked_;
  for (const Cell& first : assignment.cells) {
    if (assignment.Incoming(first.id, EdgeKind::kActivations) != nullptr) continue;
    uint32_t least_depth = std::numeric_limits<uint32_t>::max();
    const Cell* cell = &first;
    for (size_t i = 0; cell != nullptr && i < assignment.cells.size(); ++i) {
      const auto place = static_cast<size_t>(cell - assignment.cells.data());
      const uint32_t lead = std::max(asked[place].activation_lead.value_or(0),
                                     held_[place].activation_lead.value_or(0));
      if (lead > least_depth) return cell;
      least_depth = std::min({least_depth, asked[place].depth, held_[place].depth});
      const Edge* down = assignment.Outgoing(cell->id, EdgeKind::kActivations);
      cell = down == nullptr ? nullptr : assignment.Find(down->to);
    }
  }
  return nullptr;
}

}  // namespace longhaul::coordinator
