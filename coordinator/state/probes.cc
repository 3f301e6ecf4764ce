// Before a plan is made the workers of its edges measure the links between them: goodput both ways,
// round trips. ProbeRounds says which edges when; here both ends are asked, and what they say is
// kept.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/units.h"
#include "coordinator/planner/links.h"
#include "coordinator/planner/planner.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

bool Core::LinksAreMeasured(Draft& draft) {
  if (draft.probes.IsWaiting()) return false;
  const bool all_assumed = draft.assumed_line_bits_per_second && draft.assumed_delay;
  const bool has_links = draft.workers.size() > 1 && draft.candidates_for != 1u;
  if (!draft.spec.links.measure || all_assumed || !has_links) return true;
  while (true) {
    while (!draft.probes.IsOver()) {
      if (draft.survey_until && now_ >= *draft.survey_until) break;
      BeginProbes(draft);
      if (draft.probes.IsWaiting()) return false;
    }
    if (!draft.candidates_for) break;
    std::vector<ProbeEdge> edges = draft.survey.Next(CandidatesOf(draft));
    if (edges.empty()) break;
    draft.probes = ProbeRounds(std::move(edges));
    draft.survey_until = now_ + options_.survey_limit;
  }
  const Run* run = FindRun(draft.run);
  const std::optional<absl::Duration> taken = draft.probes.TakeDuration(now_);
  if (run != nullptr && taken) {
    Log(run, "note", fmt::format("measuring links took {}", longhaul::FormatDuration(*taken)));
  }
  return true;
}

bool Core::SurveyGoesOn(Draft& draft) {
  const bool measures =
      draft.spec.links.measure && !(draft.assumed_line_bits_per_second && draft.assumed_delay);
  if (!draft.candidates_for || !measures) return false;
  std::vector<ProbeEdge> edges = draft.survey.NotMeasured(draft.plan->assignment);
  if (edges.empty()) return false;
  draft.probes = ProbeRounds(std::move(edges));
  draft.survey_until.reset();  // what a plan relies on is measured however long that takes
  return true;
}

void Core::BeginProbes(Draft& draft) {
  const MonoTime until = now_ + options_.probe_limit + kAnswerPatience;
  for (const ProbeEdge& edge : draft.probes.Begin(until)) {
    const Worker &from = *FindWorker(edge.from), &to = *FindWorker(edge.to);
    const StatusOr<LinkEnds> ends =
        EndsOf(draft.spec, CandidateOf(draft.spec, from), CandidateOf(draft.spec, to), edge.kind);
    if (!ends.ok()) continue;  // the plan says what is wrong
    if (!edge.round_trips_only) links_.Drop(edge.from, edge.to);
    const Probe& probe = draft.probes.Add({.id = next_probe_++,
                                           .edge = edge,
                                           .transport = ends->transport,
                                           .to_dials = ends->downstream_dials,
                                           .relays = ends->relays},
                                          now_);
    SendProbe(from, draft, probe);
    SendProbe(to, draft, probe);
  }
}

void Core::SendProbe(const Worker& worker, const Draft& draft, const Probe& probe) {
  const Worker& peer = *FindWorker(probe.PeerOf(worker.id));
  v1::WorkerCommand command = CommandFor(draft.run, draft.epoch);
  v1::ProbeLink& ask = *command.mutable_probe_link();
  ask.set_probe(probe.id);
  ask.set_peer_name(peer.hello.name());
  ask.set_transport(std::string(ToString(probe.transport)));
  ask.set_dial(probe.Dials(worker.id));
  ask.set_round_trips_only(probe.edge.round_trips_only);
  ask.set_limit_seconds(absl::ToDoubleSeconds(options_.probe_limit));
  ask.set_link_secret(HmacSha256(
      draft.link_secret, fmt::format("probe {} of epoch {}", probe.id, draft.epoch.value())));
  const std::vector<Endpoint> ends[] = {FromProto(worker.hello.endpoints()),
                                        FromProto(peer.hello.endpoints())};
  ask.set_sealed(!probe.relays.empty() || SealsLinks(draft.spec, ends));
  for (std::string& way :
       WaysThrough(probe.relays, draft.link_secret,
                   fmt::format("probe {} of epoch {}", probe.id, draft.epoch.value()))) {
    ask.add_addresses(std::move(way));
  }
  if (!probe.relays.empty()) return Send(worker, std::move(command));
  for (const v1::DataEndpoint& endpoint : peer.hello.endpoints()) {
    if (!ask.dial() || endpoint.transport() != ask.transport()) continue;
    *ask.mutable_addresses() = endpoint.addresses();
  }
  Send(worker, std::move(command));
}

void Core::RepeatProbes(const Worker& worker, const Draft& draft) {
  for (const Probe& probe : draft.probes.AwaitedOf(worker.id)) SendProbe(worker, draft, probe);
}

void Core::OnLinkProbed(const Worker& worker, Draft& draft, const v1::LinkProbed& answer) {
  const Probe* probe = draft.probes.Answer(worker.id, answer);
  if (probe == nullptr) return;  // too late, or said twice
  if (probe->IsAnswered()) NoteLink(draft, *probe);
  AdvanceDraft(draft.run);
}

void Core::NoteLink(Draft& draft, const Probe& probe) {
  if (const std::optional<ProbeResult> result = probe.Result()) {
    links_.Note(probe, *result, now_);
    return;
  }
  draft.survey.Fail(probe.edge.from, probe.edge.to);
  const std::string problem = probe.Problem();
  Log(FindRun(draft.run), "link",
      fmt::format("the link between worker {} and worker {} could not be measured, and the plan "
                  "does not know its rate: {}",
                  Label(*FindWorker(probe.edge.from)), Label(*FindWorker(probe.edge.to)),
                  problem.empty() ? "no answer in time" : Quoted(problem)));
}

// What has not been answered in time is given up.
void Core::CheckProbes() {
  std::vector<RunId> late;
  const auto consider = [&](const RunId& id, const Draft& draft) {
    if (now_ >= draft.probes.NextWake()) late.push_back(id);
  };
  for (const auto& [id, job] : jobs_) consider(id, job.draft);
  for (const auto& [id, run] : runs_) {
    if (run.draft) consider(id, *run.draft);
  }
  for (const RunId& id : late) {
    Draft& draft = *FindDraft(id);
    for (const Probe& probe : draft.probes.GiveUp(now_)) NoteLink(draft, probe);
    AdvanceDraft(id);
  }
}

void Core::AddMeasuredLinks(const Draft& draft, CandidateWorker* worker) const {
  const auto add = [&](const WorkerId& peer) {
    // The last plan of a survey knows nothing older.
    const bool is_old = draft.survey.IsSettled() && !draft.survey.HasAsked(worker->id, peer);
    const LinkRecord* link = is_old ? nullptr : links_.Find(worker->id, peer);
    const bool has_failed = draft.survey.HasFailed(worker->id, peer);
    if (link == nullptr && !has_failed) return;
    LinkMeasurement& one = worker->to[peer];
    one.has_failed = has_failed;
    if (link == nullptr) return;
    one.bits_per_second = link->bits_per_second;
    one.latency = link->round_trip / 2;
  };
  if (draft.candidates_for) {
    for (const Draft::Candidate& peer : draft.workers) add(peer.id);
    return;
  }
  for (const ProbeEdge& edge : draft.probes.edges()) {
    if (edge.from == worker->id) add(edge.to);
    if (edge.to == worker->id) add(edge.from);
  }
}

std::vector<v1::MeasuredLink> Core::Links(MonoTime now) const {
  std::vector<WorkerId> connected;
  for (const Worker* worker : connected_) connected.push_back(worker->id);
  std::vector<v1::MeasuredLink> links;
  for (const LinkBook::Entry& entry : links_.Among(connected)) {
    v1::MeasuredLink& one = links.emplace_back();
    one.set_from_worker(FindWorker(entry.from)->hello.name());
    one.set_to_worker(FindWorker(entry.to)->hello.name());
    one.set_transport(std::string(ToString(entry.link.transport)));
    one.set_goodput_bits_per_second(entry.link.bits_per_second);
    one.set_round_trip_seconds(absl::ToDoubleSeconds(entry.link.round_trip));
    one.set_age_seconds(absl::ToDoubleSeconds(now - entry.link.at - asleep_));
  }
  return links;
}

}  // namespace longhaul::coordinator
