#include "coordinator/state/books/probe_rounds.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace longhaul::coordinator {
namespace {

// Bounds what a broken worker can do to a prediction.
bool IsPlausible(const v1::LinkProbed& answer) {
  const double rate = answer.goodput_bits_per_second(), trip = answer.round_trip_seconds();
  return std::isfinite(rate) && rate >= 0 && rate < 1e15 && std::isfinite(trip) && trip >= 0 &&
         trip < 3600;
}

bool IsMeasured(const std::optional<v1::LinkProbed>& answer, bool round_trips_only) {
  return answer && answer->problem().empty() &&
         (round_trips_only || answer->goodput_bits_per_second() > 0);
}

bool Touches(const ProbeEdge& edge, const WorkerId& worker) {
  return edge.from == worker || edge.to == worker;
}

}  // namespace

std::optional<ProbeResult> Probe::Result() const {
  const bool round_trips_only = edge.round_trips_only;
  if (!IsMeasured(from_said, round_trips_only) || !IsMeasured(to_said, round_trips_only)) {
    return std::nullopt;
  }
  return ProbeResult{
      .forward_bits_per_second = round_trips_only ? 0 : to_said->goodput_bits_per_second(),
      .backward_bits_per_second = round_trips_only ? 0 : from_said->goodput_bits_per_second(),
      .round_trip =
          absl::Seconds(std::min(from_said->round_trip_seconds(), to_said->round_trip_seconds())),
  };
}

std::string Probe::Problem() const {
  if (from_said && !from_said->problem().empty()) return from_said->problem();
  return to_said ? to_said->problem() : "";
}

ProbeRounds::ProbeRounds(std::vector<ProbeEdge> edges) : edges_(std::move(edges)) {
  for (const ProbeEdge& edge : edges_) {
    auto round = std::ranges::find_if(rounds_, [&](const std::vector<ProbeEdge>& one) {
      return std::ranges::none_of(one, [&](const ProbeEdge& other) {
        return Touches(other, edge.from) || Touches(other, edge.to);
      });
    });
    if (round == rounds_.end()) round = rounds_.emplace(rounds_.end());
    round->push_back(edge);
  }
}

std::vector<ProbeEdge> ProbeRounds::Begin(MonoTime until) {
  LH_CHECK(!IsWaiting() && !IsOver(), "round {} of {} began too early", begun_, rounds_.size());
  probes_.clear();
  until_ = until;
  return rounds_[begun_++];
}

const Probe& ProbeRounds::Add(Probe probe, MonoTime now) {
  if (!since_) since_ = now;
  return probes_.emplace_back(std::move(probe));
}

const Probe* ProbeRounds::Answer(const WorkerId& worker, const v1::LinkProbed& answer) {
  const auto probe = std::ranges::find(probes_, answer.probe(), &Probe::id);
  if (probe == probes_.end() || !Touches(probe->edge, worker)) return nullptr;
  std::optional<v1::LinkProbed>& said =
      worker == probe->edge.from ? probe->from_said : probe->to_said;
  if (said || probe->is_given_up) return nullptr;
  said = answer;
  if (!IsPlausible(answer)) said->set_problem("it reported rates or times that cannot be");
  return &*probe;
}

std::vector<Probe> ProbeRounds::GiveUp(MonoTime now) {
  std::vector<Probe> late;
  if (now < until_) return late;
  for (Probe& probe : probes_) {
    if (probe.IsAnswered()) continue;
    probe.is_given_up = true;
    late.push_back(probe);
  }
  return late;
}

bool ProbeRounds::IsWaiting() const {
  return !std::ranges::all_of(probes_, &Probe::IsAnswered);
}

std::vector<Probe> ProbeRounds::AwaitedOf(const WorkerId& worker) const {
  std::vector<Probe> awaited;
  for (const Probe& probe : probes_) {
    if (!Touches(probe.edge, worker) || probe.is_given_up) continue;
    if (!(worker == probe.edge.from ? probe.from_said : probe.to_said)) awaited.push_back(probe);
  }
  return awaited;
}

MonoTime ProbeRounds::NextWake() const {
  return IsWaiting() ? until_ : MonoTime::max();
}

std::optional<absl::Duration> ProbeRounds::TakeDuration(MonoTime now) {
  const std::optional<MonoTime> since = std::exchange(since_, std::nullopt);
  return since ? std::optional(now - *since) : std::nullopt;
}

}  // namespace longhaul::coordinator
