#include "coordinator/state/planning/probing.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/units.h"
#include "coordinator/state/text.h"
#include "coordinator/state/workers/secrets.h"
#include "planner/links.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

bool Probing::AreMeasured(Draft& draft) {
  if (draft.probes.IsWaiting()) return false;
  const bool has_links = draft.workers.size() > 1 && draft.candidates_for != 1u;
  if (!draft.MeasuresLinks() || !has_links) return true;
  while (true) {
    while (!draft.probes.IsOver()) {
      if (draft.survey_until && ledger_.now() >= *draft.survey_until) break;
      BeginRound(draft);
      if (draft.probes.IsWaiting()) return false;
    }
    if (!draft.candidates_for) break;
    std::vector<ProbeEdge> edges = draft.survey.Next(CandidatesOf(draft));
    if (edges.empty()) break;
    draft.probes = ProbeRounds(std::move(edges));
    draft.survey_until = ledger_.now() + ledger_.options().survey_limit;
  }
  const Run* run = ledger_.FindRun(draft.run);
  const std::optional<absl::Duration> taken = draft.probes.TakeDuration(ledger_.now());
  if (run != nullptr && taken) {
    ledger_.Log(run, "note", "measuring links took {}", longhaul::FormatDuration(*taken));
  }
  return true;
}

bool Probing::SurveyGoesOn(Draft& draft) {
  if (!draft.candidates_for || !draft.MeasuresLinks()) return false;
  std::vector<ProbeEdge> edges = draft.survey.NotMeasured(draft.plan->assignment);
  if (edges.empty()) return false;
  draft.probes = ProbeRounds(std::move(edges));
  draft.survey_until.reset();  // what a plan relies on is measured however long that takes
  return true;
}

void Probing::BeginRound(Draft& draft) {
  const MonoTime until = ledger_.now() + ledger_.options().probe_limit + kAnswerPatience;
  for (const ProbeEdge& edge : draft.probes.Begin(until)) {
    const Worker &from = *ledger_.FindWorker(edge.from), &to = *ledger_.FindWorker(edge.to);
    const StatusOr<LinkEnds> ends = EndsOf(draft.spec, links_.CandidateOf(draft.spec, from),
                                           links_.CandidateOf(draft.spec, to), edge.kind);
    if (!ends.ok()) continue;  // the plan says what is wrong
    if (!edge.round_trips_only) links_.measured().Drop(edge.from, edge.to);
    const Probe& probe = draft.probes.Add({.id = next_probe_++,
                                           .edge = edge,
                                           .transport = ends->transport,
                                           .to_dials = ends->downstream_dials,
                                           .relays = ends->relays},
                                          ledger_.now());
    Send(from, draft, probe);
    Send(to, draft, probe);
  }
}

void Probing::Send(const Worker& worker, const Draft& draft, const Probe& probe) {
  const Worker& peer = *ledger_.FindWorker(probe.PeerOf(worker.id));
  v1::WorkerCommand command = ledger_.CommandFor(draft.run, draft.epoch);
  v1::ProbeLink& ask = *command.mutable_probe_link();
  ask.set_probe(probe.id);
  ask.set_peer_name(peer.hello.name());
  ask.set_transport(std::string(ToString(probe.transport)));
  ask.set_dial(probe.Dials(worker.id));
  ask.set_round_trips_only(probe.edge.round_trips_only);
  ask.set_limit_seconds(absl::ToDoubleSeconds(ledger_.options().probe_limit));
  const std::string tag = ledger_.DraftTag(draft.run, draft.epoch);
  ask.set_link_secret(ProbeSecret(draft.link_secret, tag, probe.id));
  const std::vector<Endpoint> ends[] = {FromProto(worker.hello.endpoints()),
                                        FromProto(peer.hello.endpoints())};
  ask.set_sealed(!probe.relays.empty() || SealsLinks(draft.spec, ends));
  for (std::string& way : links_.WaysThrough(probe.relays, draft.link_secret, tag,
                                             fmt::format("probe {}", probe.id))) {
    ask.add_addresses(std::move(way));
  }
  if (!probe.relays.empty()) return ledger_.Send(worker, std::move(command));
  for (const v1::DataEndpoint& endpoint : peer.hello.endpoints()) {
    if (endpoint.transport() != ask.transport()) continue;
    *(ask.dial() ? ask.mutable_addresses() : ask.mutable_dialler_addresses()) =
        endpoint.addresses();
  }
  ledger_.Send(worker, std::move(command));
}

void Probing::Repeat(const Worker& worker, const Draft& draft) {
  for (const Probe& probe : draft.probes.AwaitedOf(worker.id)) Send(worker, draft, probe);
}

bool Probing::OnAnswer(const Worker& worker, Draft& draft, const v1::LinkProbed& answer) {
  const Probe* probe = draft.probes.Answer(worker.id, answer);
  if (probe == nullptr) return false;  // too late, or said twice
  if (probe->IsAnswered()) Note(draft, *probe);
  return true;
}

void Probing::Note(Draft& draft, const Probe& probe) {
  if (const std::optional<ProbeResult> result = probe.Result()) {
    links_.measured().Note(probe, *result, ledger_.now());
    return;
  }
  draft.survey.Fail(probe.edge.from, probe.edge.to);
  const std::string problem = probe.Problem();
  ledger_.Log(ledger_.FindRun(draft.run), "link",
              "the link between worker {} and worker {} could not be measured, and the plan "
              "does not know its rate: {}",
              ledger_.Label(*ledger_.FindWorker(probe.edge.from)),
              ledger_.Label(*ledger_.FindWorker(probe.edge.to)),
              problem.empty() ? "no answer in time" : Quoted(problem));
}

void Probing::GiveUp(Draft& draft) {
  for (const Probe& probe : draft.probes.GiveUp(ledger_.now())) Note(draft, probe);
}

std::vector<CandidateWorker> Probing::CandidatesOf(const Draft& draft) const {
  std::vector<CandidateWorker> candidates;
  for (const Draft::Candidate& candidate : draft.workers) {
    CandidateWorker& one =
        candidates.emplace_back(links_.CandidateOf(draft.spec, *ledger_.FindWorker(candidate.id)));
    AddMeasured(draft, &one);
  }
  return candidates;
}

void Probing::AddMeasured(const Draft& draft, CandidateWorker* worker) const {
  const auto add = [&](const WorkerId& peer) {
    // The last plan of a survey knows nothing older.
    const bool is_old = draft.survey.IsSettled() && !draft.survey.HasAsked(worker->id, peer);
    const LinkRecord* link = is_old ? nullptr : links_.measured().Find(worker->id, peer);
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

}  // namespace longhaul::coordinator
