// Before a plan is made its neighbours measure the links between them: goodput both ways, round
// trips. First those of even boundaries, then those of odd ones, so that a worker's interface
// carries one link at a time. What cannot be measured is unknown to the plan; that fails nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/hash.h"
#include "base/units.h"
#include "coordinator/planner/planner.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {
namespace {

constexpr uint32_t kRounds = 2;

// Bounds what a broken worker can do to a prediction.
bool IsPlausible(const v1::LinkProbed& answer) {
  const double rate = answer.goodput_bits_per_second(), trip = answer.round_trip_seconds();
  return std::isfinite(rate) && rate >= 0 && rate < 1e15 && std::isfinite(trip) && trip >= 0 &&
         trip < 3600;
}

}  // namespace

bool Core::LinksAreMeasured(Draft& draft) {
  while (true) {
    const bool answered = std::all_of(draft.probes.begin(), draft.probes.end(),
                                      [](const ProbeRecord& probe) { return probe.IsAnswered(); });
    if (!answered) return false;
    draft.probes.clear();
    const bool all_assumed = draft.assumed_line_bits_per_second && draft.assumed_delay;
    if (!draft.spec.links.measure || all_assumed) return true;
    if (draft.probe_rounds == kRounds) {
      NoteLinks(draft);
      return true;
    }
    BeginProbes(draft, draft.probe_rounds++);
  }
}

void Core::BeginProbes(Draft& draft, uint32_t round) {
  draft.probe_until = now_ + options_.probe_limit + kAnswerPatience;
  for (uint32_t boundary = round; boundary + 1 < draft.workers.size(); boundary += kRounds) {
    const Worker& upper = *FindWorker(draft.workers[boundary].id);
    const Worker& lower = *FindWorker(draft.workers[boundary + 1].id);
    const StatusOr<LinkEnds> ends =
        EndsOf(draft.spec, CandidateOf(draft.spec, upper), CandidateOf(draft.spec, lower));
    if (!ends.ok()) continue;  // the plan says what is wrong
    links_.erase({upper.id, lower.id});
    links_.erase({lower.id, upper.id});
    draft.probes.push_back({.id = next_probe_++,
                            .boundary = boundary,
                            .transport = ends->transport,
                            .downstream_dials = ends->downstream_dials});
    SendProbe(upper, lower, draft, draft.probes.back());
    SendProbe(lower, upper, draft, draft.probes.back());
    if (!draft.probing_since) draft.probing_since = now_;
  }
}

void Core::SendProbe(const Worker& worker, const Worker& peer, const Draft& draft,
                     const ProbeRecord& probe) {
  const bool is_lower = worker.id == draft.workers[probe.boundary + 1].id;
  v1::WorkerCommand command = CommandFor(draft.run, draft.epoch);
  v1::ProbeLink& ask = *command.mutable_probe_link();
  ask.set_probe(probe.id);
  ask.set_boundary(probe.boundary);
  ask.set_peer_name(peer.hello.name());
  ask.set_transport(std::string(ToString(probe.transport)));
  ask.set_dial(probe.downstream_dials == is_lower);
  ask.set_limit_seconds(absl::ToDoubleSeconds(options_.probe_limit));
  ask.set_link_secret(HmacSha256(
      draft.link_secret, fmt::format("probe {} of epoch {}", probe.id, draft.epoch.value())));
  for (const v1::DataEndpoint& endpoint : peer.hello.endpoints()) {
    if (!ask.dial() || endpoint.transport() != ask.transport()) continue;
    *ask.mutable_addresses() = endpoint.addresses();
  }
  Send(worker, std::move(command));
}

void Core::RepeatProbes(const Worker& worker, const Draft& draft) {
  for (const ProbeRecord& probe : draft.probes) {
    const WorkerId& upper = draft.workers[probe.boundary].id;
    const WorkerId& lower = draft.workers[probe.boundary + 1].id;
    if (worker.id == upper && !probe.upper) SendProbe(worker, *FindWorker(lower), draft, probe);
    if (worker.id == lower && !probe.lower) SendProbe(worker, *FindWorker(upper), draft, probe);
  }
}

void Core::OnLinkProbed(const Worker& worker, Draft& draft, const v1::LinkProbed& answer) {
  const auto probe = std::find_if(draft.probes.begin(), draft.probes.end(),
                                  [&](const ProbeRecord& one) { return one.id == answer.probe(); });
  if (probe == draft.probes.end()) return;  // too late
  const bool is_upper = draft.workers[probe->boundary].id == worker.id;
  if (!is_upper && draft.workers[probe->boundary + 1].id != worker.id) return;
  std::optional<v1::LinkProbed>& mine = is_upper ? probe->upper : probe->lower;
  if (mine) return;
  mine = answer;
  if (!IsPlausible(answer)) mine->set_problem("it reported rates or times that cannot be");
  if (probe->IsAnswered()) NoteLink(draft, *probe);
  AdvanceDraft(draft.run);
}

void Core::NoteLink(const Draft& draft, const ProbeRecord& probe) {
  const WorkerId& upper = draft.workers[probe.boundary].id;
  const WorkerId& lower = draft.workers[probe.boundary + 1].id;
  const v1::LinkProbed none;
  const v1::LinkProbed& above = probe.upper ? *probe.upper : none;
  const v1::LinkProbed& below = probe.lower ? *probe.lower : none;
  const auto known = [](const std::optional<v1::LinkProbed>& answer) {
    return answer && answer->problem().empty() && answer->goodput_bits_per_second() > 0;
  };
  if (known(probe.upper) && known(probe.lower)) {
    MeasuredLink link{.transport = probe.transport,
                      .bits_per_second = below.goodput_bits_per_second(),  // what arrived there
                      .round_trip = absl::Seconds(
                          std::min(above.round_trip_seconds(), below.round_trip_seconds())),
                      .at = now_};
    links_[{upper, lower}] = link;
    link.bits_per_second = above.goodput_bits_per_second();
    links_[{lower, upper}] = link;
    return;
  }
  const std::string& problem = above.problem().empty() ? below.problem() : above.problem();
  Log(FindRun(draft.run), "link",
      fmt::format("the link between worker {} and worker {} could not be measured, and the plan "
                  "does not know its rate: {}",
                  Label(*FindWorker(upper)), Label(*FindWorker(lower)),
                  problem.empty() ? "no answer in time" : Quoted(problem)));
}

// How long it took, if there were any.
void Core::NoteLinks(Draft& draft) {
  const Run* run = FindRun(draft.run);
  if (run != nullptr && draft.probing_since) {
    Log(run, "note",
        fmt::format("measuring links took {}",
                    longhaul::FormatDuration(longhaul::operator-(now_, *draft.probing_since))));
  }
  draft.probing_since.reset();
}

// What has not been answered in time is given up.
void Core::CheckProbes() {
  std::vector<RunId> late;
  const auto consider = [&](const RunId& id, const Draft& draft) {
    if (!draft.probes.empty() && now_ >= draft.probe_until) late.push_back(id);
  };
  for (const auto& [id, job] : jobs_) consider(id, job.draft);
  for (const auto& [id, run] : runs_) {
    if (run.draft) consider(id, *run.draft);
  }
  for (const RunId& id : late) {
    Draft& draft = *FindDraft(id);
    for (ProbeRecord& probe : draft.probes) {
      if (probe.IsAnswered()) continue;
      NoteLink(draft, probe);
      probe.given_up = true;
    }
    AdvanceDraft(id);
  }
}

void Core::AddMeasuredLinks(const Draft& draft, size_t index, CandidateWorker* worker) const {
  for (const size_t neighbour : {index - 1, index + 1}) {
    if (neighbour >= draft.workers.size()) continue;  // also what is left of the first
    const WorkerId& peer = draft.workers[neighbour].id;
    const auto link = links_.find({worker->id, peer});
    if (link == links_.end()) continue;
    worker->to[peer] = {.bits_per_second = link->second.bits_per_second,
                        .latency = link->second.round_trip / 2};
  }
}

void Core::ForgetLinks(const WorkerId& id) {
  std::erase_if(links_, [&](const auto& entry) {
    return entry.first.first == id || entry.first.second == id;
  });
}

std::vector<v1::MeasuredLink> Core::Links(MonoTime now) const {
  const std::vector<const Worker*> workers = ConnectedByName();
  std::map<WorkerId, size_t> places;
  for (size_t i = 0; i < workers.size(); ++i) places[workers[i]->id] = i;
  std::map<std::pair<size_t, size_t>, const MeasuredLink*> sorted;
  for (const auto& [pair, link] : links_) {
    const auto from = places.find(pair.first), to = places.find(pair.second);
    if (from == places.end() || to == places.end()) continue;
    sorted[{from->second, to->second}] = &link;
  }
  std::vector<v1::MeasuredLink> links;
  for (const auto& [pair, link] : sorted) {
    v1::MeasuredLink& one = links.emplace_back();
    one.set_from_worker(workers[pair.first]->hello.name());
    one.set_to_worker(workers[pair.second]->hello.name());
    one.set_transport(std::string(ToString(link->transport)));
    one.set_goodput_bits_per_second(link->bits_per_second);
    one.set_round_trip_seconds(absl::ToDoubleSeconds(link->round_trip));
    one.set_age_seconds(absl::ToDoubleSeconds(now - link->at - asleep_));
  }
  return links;
}

}  // namespace longhaul::coordinator
