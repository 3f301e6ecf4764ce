// Files on their way to a worker that needs them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/units.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/shards/shards.h"
#include "coordinator/state/text.h"
#include "coordinator/state/workers/secrets.h"
#include "planner/links.h"
#include "proto/wire/transfer_word.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

namespace {

// Files that a run waits for move at this share of the line at least, or the transfer fails.
constexpr double kLeastMoveShare = 0.1;
// Time beside that of the bytes, to open a link and to hash.
constexpr absl::Duration kTransferSlack = absl::Minutes(10);
constexpr absl::Duration kLongestTransfer = absl::Hours(23);
// The worker's time is over before the coordinator's.
constexpr absl::Duration kAnswerSlack = absl::Minutes(1);

// The run trains while these files move, and does not wait for them.
bool IsPaced(ShardCheck::Purpose purpose) {
  return purpose == ShardCheck::Purpose::kCopy || purpose == ShardCheck::Purpose::kAudit;
}

}  // namespace

void Shards::BeginMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves) {
  if (moves.empty()) return;
  uint64_t bytes = 0;
  std::map<std::pair<WorkerId, WorkerId>, std::vector<v1::CheckpointFile>> direct;
  std::map<std::pair<WorkerId, std::string>, std::vector<v1::CheckpointFile>> from_folders;
  std::map<std::string, v1::StoredFolder> folders;
  std::map<std::string, v1::CheckpointFile> others;
  for (const ShardMove& move : moves) {
    bytes += move.file.bytes();
    const Worker* source = SourceOf(ledger_, move.file);
    const Worker* to = ledger_.FindWorker(move.to);
    if (source != nullptr && to != nullptr && to->session &&
        links_.PathBetween(run, *source, *to).ok()) {
      direct[{source->id, to->id}].push_back(move.file);
    } else if (const v1::ShardHolder* stored = StoredCopyOf(move.file);
               stored != nullptr && to != nullptr && to->session) {
      from_folders[{to->id, stored->worker_id()}].push_back(move.file);
      folders[stored->worker_id()] = FolderOf(*stored);
    } else {
      others[move.file.name()] = move.file;
    }
  }
  ledger_.Log(&run, "checkpoint",
              "{} shards of the checkpoint of step {} ({}) move to other workers", moves.size(),
              step, FormatBytes(bytes));
  for (auto& [ends, files] : direct) {
    StartTransfer(run, step, ShardCheck::Purpose::kResume, ends.first, ends.second,
                  std::move(files));
  }
  for (auto& [key, fetched] : from_folders) {
    StartFetch(run, step, key.first, folders[key.second], std::move(fetched));
  }
  std::vector<v1::CheckpointFile> files;
  for (auto& [name, file] : others) files.push_back(std::move(file));
  AskForCopies(run, step, files, ShardCheck::Purpose::kResume);
}

void Shards::BeginAuditMoves(const Run& run, uint64_t step, const std::vector<ShardMove>& moves,
                             bool by_way) {
  std::map<std::pair<WorkerId, WorkerId>, std::vector<v1::CheckpointFile>> direct;
  std::vector<v1::CheckpointFile> others;
  for (const ShardMove& move : moves) {
    const Worker* source = SourceOf(ledger_, move.file);
    const Worker* to = ledger_.FindWorker(move.to);
    if (!by_way && source != nullptr && to != nullptr && to->session &&
        links_.PathBetween(run, *source, *to).ok()) {
      direct[{source->id, to->id}].push_back(move.file);
    } else {
      others.push_back(move.file);
    }
  }
  for (auto& [ends, files] : direct) {
    StartTransfer(run, step, ShardCheck::Purpose::kAudit, ends.first, ends.second,
                  std::move(files));
  }
  AskForCopies(run, step, others, ShardCheck::Purpose::kAudit);
}

void Shards::StartTransfer(const Run& run, uint64_t step, ShardCheck::Purpose purpose,
                           const WorkerId& source, const std::optional<WorkerId>& to,
                           std::vector<v1::CheckpointFile> files) {
  ShardCheck check{
      .purpose = purpose, .run = run.record.id, .epoch = run.record.epoch, .step = step};
  check.worker = source;
  check.incarnation = ledger_.FindWorker(source)->incarnation;
  check.files = std::move(files);
  check.copy = true;
  check.to = to;
  if (to) {
    double bytes = 0;
    for (const v1::CheckpointFile& file : check.files) bytes += static_cast<double>(file.bytes());
    const double line = LineBetween(run, *ledger_.FindWorker(source), *ledger_.FindWorker(*to));
    const double share = IsPaced(purpose) ? wire::kLeastCopyShare : kLeastMoveShare;
    const absl::Duration under_way =
        absl::Seconds(8 * bytes / (share * (line > 0 ? line : wire::kAssumedLineBitsPerSecond)));
    check.limit = std::min(kLongestTransfer, kTransferSlack + under_way) + kAnswerSlack;
  }
  Start(std::move(check));
}

void Shards::StartUpload(const Run& run, uint64_t step, const WorkerId& source,
                         const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files) {
  ShardCheck check{.purpose = ShardCheck::Purpose::kStore};
  check.copy = true;
  StartWithFolder(run, step, source, folder, std::move(files), std::move(check));
}

void Shards::StartFetch(const Run& run, uint64_t step, const WorkerId& worker,
                        const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files) {
  ShardCheck check{.purpose = ShardCheck::Purpose::kResume};
  check.takes = true;
  StartWithFolder(run, step, worker, folder, std::move(files), std::move(check));
}

void Shards::StartWithFolder(const Run& run, uint64_t step, const WorkerId& worker,
                             const v1::StoredFolder& folder, std::vector<v1::CheckpointFile> files,
                             ShardCheck check) {
  check.run = run.record.id;
  check.epoch = run.record.epoch;
  check.step = step;
  check.worker = worker;
  check.incarnation = ledger_.FindWorker(worker)->incarnation;
  check.files = std::move(files);
  check.folder = folder;
  check.limit = kLongestTransfer;  // the worker ends it earlier where nothing moves
  Start(std::move(check));
}

std::string Shards::NoteTaken(Run& run, const ShardCheck& check, const Worker& worker,
                              const v1::ShardState& said, v1::CheckpointFile& file) {
  const std::string& folder = check.folder->address();
  const std::string problem = Quoted(said.problem());
  NoteProblem(run, check.step, file, folder, folder, problem);
  if (!problem.empty()) return "";
  if (said.copied()) {
    AddHolder(worker.id.value(), worker.hello.name(), &file);
    return "";
  }
  return fmt::format("worker {} could not fetch {} of the checkpoint of step {} from {}: {}",
                     ledger_.Label(worker), file.name(), check.step, folder,
                     said.copy_error().empty() ? "it did not say why" : Quoted(said.copy_error()));
}

// Both ends hear of it. Where one of them has just gone, nothing is sent, and Lose ends the check.
void Shards::SendTransfer(uint64_t id, const ShardCheck& check, v1::WorkerCommand to_source) {
  const Run& run = *ledger_.FindRun(check.run);
  const Worker* source = ledger_.FindWorker(*check.worker);
  const Worker* holder = ledger_.FindWorker(*check.to);
  if (source == nullptr || !source->session || holder == nullptr || !holder->session) return;
  const StatusOr<LinkEnds> ends = links_.PathBetween(run, *source, *holder);
  if (!ends.ok()) return;
  const bool paced = IsPaced(check.purpose);
  v1::ShardPath path;
  path.set_transport(std::string(ToString(ends->transport)));
  // The run may begin another epoch while the files are on their way.
  const std::string tag = ledger_.DraftTag(check.run, check.epoch);
  path.set_link_secret(TransferSecret(run.record.link_secret, tag, id));
  const std::vector<Endpoint> both[] = {FromProto(source->hello.endpoints()),
                                        FromProto(holder->hello.endpoints())};
  path.set_sealed(run.assignment().sealed || !ends->relays.empty() ||
                  SealsLinks(run.record.spec, both));
  for (std::string& way : links_.WaysThrough(ends->relays, run.record.link_secret, tag,
                                             fmt::format("shards of check {}", id))) {
    path.add_addresses(std::move(way));
  }
  path.set_limit_seconds(absl::ToDoubleSeconds(check.limit - kAnswerSlack));
  path.set_paced(paced);
  path.set_line_bits_per_second(LineBetween(run, *source, *holder));
  v1::WorkerCommand to_holder = ledger_.CommandFor(check.run, check.epoch);
  for (v1::WorkerCommand* command : {&to_holder, &to_source}) {
    command->set_stamp(StampOf(tag).value());
  }
  v1::TakeShards& take = *to_holder.mutable_take_shards();
  take.set_check(id);
  take.set_step(check.step);
  for (const v1::CheckpointFile& file : check.files) *take.add_files() = file;
  *take.mutable_from() = path;
  *to_source.mutable_check_shards()->mutable_to() = path;
  const auto fill = [&](const Worker& peer, bool dials, v1::ShardPath* one) {
    one->set_peer_name(peer.hello.name());
    one->set_dial(dials);
    for (const v1::DataEndpoint& endpoint : peer.hello.endpoints()) {
      if (endpoint.transport() != path.transport()) continue;
      *(dials ? one->mutable_addresses() : one->mutable_dialler_addresses()) = endpoint.addresses();
    }
  };
  fill(*source, ends->downstream_dials, take.mutable_from());
  fill(*holder, !ends->downstream_dials, to_source.mutable_check_shards()->mutable_to());
  ledger_.Send(*holder, std::move(to_holder));
  ledger_.Send(*source, std::move(to_source));
}

double Shards::MoveBitsPerSecond(const Run& run, const Worker& source, const Worker* to) const {
  const double line = LineBetween(run, source, to == nullptr ? source : *to);
  const LinkRecord* link = to == nullptr ? nullptr : links_.measured().Find(source.id, to->id);
  if (link == nullptr || !(link->bits_per_second > 0)) return line;
  return line > 0 ? std::min(line, link->bits_per_second) : link->bits_per_second;
}

// What the plan knows of the slower interface; 0: nothing.
double Shards::LineBetween(const Run& run, const Worker& source, const Worker& holder) const {
  double rate = 0;
  for (const StageRecord& stage : run.stages) {
    if (stage.place >= run.record.plan->cells.size()) continue;
    const CellEstimate& cell = run.record.plan->cells[stage.place];
    double known = 0;
    if (stage.worker == source.id) known = cell.egress_bits_per_second;
    if (stage.worker == holder.id) known = cell.ingress_bits_per_second;
    if (known > 0) rate = rate > 0 ? std::min(rate, known) : known;
  }
  return rate;
}

}  // namespace longhaul::coordinator
