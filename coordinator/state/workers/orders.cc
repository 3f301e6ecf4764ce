#include "coordinator/state/workers/orders.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "coordinator/state/books/shard_files.h"
#include "coordinator/state/workers/secrets.h"
#include "planner/replicas.h"
#include "run/plan/proto/plan_proto.h"
#include "run/tokens/token_file.h"

namespace longhaul::coordinator {

void Orders::Act(Run& run, Action action) {
  if (action == Action::kStop) SendStop(run);
  if (action != Action::kAssign && action != Action::kStart) return;
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
    if (worker == nullptr) continue;
    if (action == Action::kAssign) {
      SendAssign(*worker, run, stage);
    } else {
      SendStart(*worker, run);
    }
  }
}

void Orders::SendMeasure(const Worker& worker, const RunId& run, Epoch epoch, const RunSpec& spec) {
  v1::WorkerCommand command = ledger_.CommandFor(run, epoch);
  v1::Measure& measure = *command.mutable_measure();
  measure.set_run_yaml(ToYaml(spec));
  // The tokenizer says the vocabulary before the data are prepared.
  const auto tokenizer = Tokenizer::Create(spec.data.tokenizer);
  measure.set_vocabulary(!spec.data.sets.empty() ? spec.data.vocabulary
                         : tokenizer.ok()        ? (*tokenizer)->vocabulary()
                                                 : 256);
  ledger_.Send(worker, std::move(command));
}

void Orders::SendAssign(const Worker& worker, const Run& run, const StageRecord& stage) {
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  v1::Assign& assign = *command.mutable_assign();
  const Assignment& assignment = run.assignment();
  *assign.mutable_assignment() = ToProto(assignment);
  *assign.mutable_cell() = ToProto(stage.id);
  const std::string& secret = run.record.link_secret;
  assign.set_link_secret(LinksSecret(secret, assignment.hash));
  for (const Edge& edge : assignment.edges) {
    if (edge.from != stage.id && edge.to != stage.id) continue;
    (*assign.mutable_edge_secrets())[edge.id.value()] =
        EdgeSecret(secret, assignment.hash, edge.id);
    if (edge.relays.empty()) continue;
    v1::RelayWays& ways = (*assign.mutable_edge_ways())[edge.id.value()];
    for (std::string& way : links_.WaysThrough(edge.relays, secret, assignment.hash,
                                               fmt::format("edge {}", edge.id.value()))) {
      ways.add_ways(std::move(way));
    }
  }
  for (const v1::AcceptedOutlier& one : run.accepted_outliers) {
    *assign.add_accepted_outliers() = one;
  }
  const uint32_t replicas = ReplicasOf(assignment);
  for (const v1::CheckpointManifest& manifest : run.record.checkpoints) {
    if (assignment.start_step == 0 || manifest.step() != assignment.start_step) continue;
    for (v1::CheckpointFile& file :
         FilesOfCell(manifest, assignment.cells[stage.place], replicas)) {
      *assign.add_resume_files() = std::move(file);
    }
  }
  ledger_.Send(worker, std::move(command));
}

void Orders::SendStart(const Worker& worker, const Run& run) {
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  command.mutable_start();
  ledger_.Send(worker, std::move(command));
}

void Orders::SendStop(const Run& run) {
  for (const StageRecord& stage : run.stages) {
    const Worker* worker = ledger_.LiveWorkerOf(stage.worker, stage.incarnation);
    if (!stage.is_first || worker == nullptr)
      continue;  // a worker that is away is told when it comes back
    v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
    command.mutable_stop();
    ledger_.Send(*worker, std::move(command));
  }
}

void Orders::SendReaddress(const Run& run, const Edge& edge) {
  const StageRecord& dialler = *run.Find(edge.dialler());
  const Worker* worker = ledger_.LiveWorkerOf(dialler.worker, dialler.incarnation);
  const Endpoint* endpoint = run.assignment().Find(edge.dialled())->EndpointOf(edge.transport);
  if (worker == nullptr || endpoint == nullptr || endpoint->addresses.empty()) return;
  v1::WorkerCommand command = ledger_.CommandFor(run.record.id, run.record.epoch);
  command.mutable_readdress()->set_edge(edge.id.value());
  for (const std::string& address : endpoint->addresses) {
    command.mutable_readdress()->add_addresses(address);
  }
  ledger_.Send(*worker, std::move(command));
}

}  // namespace longhaul::coordinator
