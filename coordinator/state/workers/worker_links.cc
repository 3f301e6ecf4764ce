#include "coordinator/state/workers/worker_links.h"

#include <algorithm>
#include <utility>

#include "planner/links.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

WorkerLinks::WorkerLinks(Ledger& ledger)
    : ledger_(ledger),
      reach_({.patience = ledger.options().reach_limit + kAnswerPatience,
              .secret = ledger.options().reach_secret,
              .first_check = ledger.FirstNumber("first check"),
              .label = [&ledger](const WorkerId& id) {
                return ledger.Label(*ledger.FindWorker(id));
              }}) {}

void WorkerLinks::Forget(const WorkerId& id) {
  measured_.Forget(id);
  reach_.Forget(id);
}

void WorkerLinks::OnTried(const WorkerId& from, const v1::ReachTried& tried) {
  Carry(reach_.Answer(from, tried, ledger_.now()));
}

void WorkerLinks::CheckTimers() {
  Carry(reach_.PassTime(ledger_.now()));
}

void WorkerLinks::Come(const Worker& worker) {
  Carry(reach_.Come({worker.id, worker.hello.name(), FromProto(worker.hello.endpoints())},
                    ledger_.now()));
}

void WorkerLinks::Carry(const ReachBook::News& news) {
  for (const ReachBook::Question& question : news.questions) {
    const Worker &from = *ledger_.FindWorker(question.dialler),
                 &to = *ledger_.FindWorker(question.dialled);
    v1::WorkerCommand command;
    v1::TryReach& ask = *command.mutable_try_reach();
    ask.set_check(question.check);
    ask.set_transport(question.transport);
    ask.set_limit_seconds(absl::ToDoubleSeconds(ledger_.options().reach_limit));
    ask.set_link_secret(question.link_secret);
    ask.mutable_addresses()->Assign(question.addresses.begin(), question.addresses.end());
    ask.set_peer_name(from.hello.name());
    for (const v1::DataEndpoint& endpoint : from.hello.endpoints()) {
      if (endpoint.transport() != question.transport) continue;
      *ask.mutable_dialler_addresses() = endpoint.addresses();
    }
    ledger_.Send(to, command);
    ask.clear_dialler_addresses();
    ask.set_peer_name(to.hello.name());
    ask.set_dial(true);
    ledger_.Send(from, std::move(command));
  }
  for (const std::string& sentence : news.sentences) ledger_.Log(nullptr, "worker", sentence);
  if (news.has_changed) ledger_.ListChanged();
}

void WorkerLinks::AddReach(CandidateWorker* worker) const {
  for (ReachBook::Failure& failure : reach_.FailuresOf(worker->id)) {
    const TransportTraits* const transport = FindTransport(failure.transport);
    if (transport == nullptr) continue;
    worker->does_not_reach[{failure.to, transport->kind}] = std::move(failure.problem);
  }
}

bool WorkerLinks::IsTrying(const RunSpec& spec, const Worker& upper, const Worker& lower,
                           EdgeKind kind) const {
  const auto transport =
      LinkTransport(spec, CandidateOf(spec, upper), CandidateOf(spec, lower), kind);
  if (!transport.ok()) return false;
  if (reach_.IsAsking(upper.id, lower.id, std::string(ToString(*transport)))) return true;
  // A relay is for workers that reach each other over no transport.
  const auto ends = EndsOf(spec, CandidateOf(spec, upper), CandidateOf(spec, lower), kind);
  return !ends.ok() && !RelaysNow().empty() &&
         std::ranges::any_of(kTransports, [&](const TransportTraits& one) {
           return one.faces_strangers && reach_.IsAsking(upper.id, lower.id, std::string(one.name));
         });
}

MonoTime WorkerLinks::PatientUntil() const {
  return ledger_.now() + ledger_.options().reach_limit + kAnswerPatience;
}

void WorkerLinks::Render(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const {
  const ReachBook::Standing standing = reach_.StandingOf(worker.id);
  for (const ReachBook::CutOff& cut : standing.cut_off) {
    v1::UnreachableWorker& one = *status->add_cannot_talk_to();
    one.set_worker(cut.name);
    one.set_transport(cut.transport);
    one.set_problem(cut.problem);
    one.set_age_seconds(absl::ToDoubleSeconds(now - cut.at - ledger_.asleep()));
  }
  status->set_can_talk_to(standing.talks_to);
}

std::vector<v1::MeasuredLink> WorkerLinks::Links(MonoTime now) const {
  std::vector<WorkerId> connected;
  for (const Worker* worker : ledger_.connected()) connected.push_back(worker->id);
  std::vector<v1::MeasuredLink> links;
  for (const LinkBook::Entry& entry : measured_.Among(connected)) {
    v1::MeasuredLink& one = links.emplace_back();
    one.set_from_worker(ledger_.FindWorker(entry.from)->hello.name());
    one.set_to_worker(ledger_.FindWorker(entry.to)->hello.name());
    one.set_transport(std::string(ToString(entry.link.transport)));
    one.set_goodput_bits_per_second(entry.link.bits_per_second);
    one.set_round_trip_seconds(absl::ToDoubleSeconds(entry.link.round_trip));
    one.set_age_seconds(absl::ToDoubleSeconds(now - entry.link.at - ledger_.asleep()));
  }
  return links;
}

}  // namespace longhaul::coordinator
