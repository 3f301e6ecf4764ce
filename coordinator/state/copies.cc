// Copies of what the stages of a run know, at another worker, so that no machine takes its stage
// with it: of the newest checkpoint first, one set at a time. A set counts when every file of it is
// held twice; older ones give way only then. And files on their way to a worker that needs them.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/units.h"
#include "coordinator/planner/links.h"
#include "coordinator/state/checkpoints.h"
#include "coordinator/state/core.h"
#include "coordinator/state/text.h"
#include "proto/wire/transfer_word.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// Files that a run waits for get there at this share of the line, or it is tried otherwise.
constexpr double kLeastMoveShare = 0.1;
// Beside the bytes: to open a link, to hash.
constexpr absl::Duration kTransferSlack = absl::Minutes(10);
constexpr absl::Duration kLongestTransfer = absl::Hours(23);
// The worker's time is over before ours.
constexpr absl::Duration kAnswerSlack = absl::Minutes(1);
// After a copy that failed.
constexpr absl::Duration kCopyPause = absl::Seconds(30);

}  // namespace

bool IsSafe(const v1::CheckpointFile& file) {
  if (IsCopied(file)) return true;
  const auto whole = std::count_if(file.holders().begin(), file.holders().end(),
                                   [](const auto& holder) { return holder.problem().empty(); });
  return whole >= 2;
}

uint64_t NewestSafe(const RunRecord& record) {
  for (auto it = record.checkpoints.rbegin(); it != record.checkpoints.rend(); ++it) {
    if (std::all_of(it->files().begin(), it->files().end(), IsSafe)) return it->step();
  }
  return 0;
}

void Core::AdvanceCopies() {
  for (Run* run : RunsInOrder()) {
    if (HasStages(run->record.state) && run->assignment().copy_every > 0) BeginCopies(*run);
  }
}

void Core::BeginCopies(Run& run) {
  if (run.record.checkpoints.empty() || shards_.IsCopying(run.record.id)) return;
  const v1::CheckpointManifest& manifest = run.record.checkpoints.back();
  const bool again =
      manifest.step() == run.copies_begun && run.copies_again && now_ >= *run.copies_again;
  if (manifest.step() <= run.copies_begun && !again) return;
  run.copies_begun = manifest.step();
  run.copies_again.reset();
  // By who has them and who takes them; nullopt: the coordinator.
  std::map<std::pair<WorkerId, std::optional<WorkerId>>, std::vector<v1::CheckpointFile>> transfers;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsCopied(file) || HoldersWithinReach(file) >= 2) continue;
    const Worker* source = SourceOf(file);
    if (source == nullptr) continue;
    const Worker* holder = HolderFor(run, *source);
    const auto to = holder == nullptr ? std::nullopt : std::optional(holder->id);
    transfers[{source->id, to}].push_back(file);
  }
  for (auto& [ends, files] : transfers) {
    StartTransfer(run, manifest.step(), ShardCheck::Purpose::kCopy, ends.first, ends.second,
                  std::move(files));
  }
}

// Connected, and whose file is whole as far as is known.
size_t Core::HoldersWithinReach(const v1::CheckpointFile& file) const {
  return static_cast<size_t>(std::count_if(
      file.holders().begin(), file.holders().end(),
      [this](const auto& holder) { return holder.problem().empty() && IsConnected(holder); }));
}

Worker* Core::SourceOf(const v1::CheckpointFile& file) {
  for (const v1::ShardHolder& holder : file.holders()) {
    if (!holder.problem().empty() || !IsConnected(holder)) continue;
    return FindWorker(WorkerId(holder.worker_id()));
  }
  return nullptr;
}

// A spare; else the neighbour that gets least; else nobody, that is the coordinator.
Worker* Core::HolderFor(Run& run, const Worker& source) {
  for (Worker* spare : SparesOf(run)) {
    if (PathBetween(run, source, *spare).ok()) return spare;
  }
  const StageRecord* stage = StageOf(run, source);
  if (stage == nullptr) return nullptr;
  Worker* best = nullptr;
  double least = 0;
  for (const Edge& edge : run.assignment().edges) {
    if (edge.from != stage->id && edge.to != stage->id) continue;
    const StageRecord& peer = *run.Find(edge.PeerOf(stage->id));
    Worker* worker = LiveWorkerOf(peer.worker, peer.incarnation);
    if (worker == nullptr || !PathBetween(run, source, *worker).ok()) continue;
    const auto& cells = run.record.plan->prediction.cells;
    const double gets = peer.place < cells.size() ? cells[peer.place].ingress_share : 0;
    if (best != nullptr && gets >= least) continue;
    best = worker;
    least = gets;
  }
  return best;
}

StatusOr<LinkEnds> Core::PathBetween(const Run& run, const Worker& source, const Worker& holder,
                                     EdgeKind kind) const {
  const RunSpec& spec = run.record.spec;
  return EndsOf(spec, CandidateOf(spec, source), CandidateOf(spec, holder), kind);
}

void Core::StartTransfer(const Run& run, uint64_t step, ShardCheck::Purpose purpose,
                         const WorkerId& source, const std::optional<WorkerId>& to,
                         std::vector<v1::CheckpointFile> files) {
  ShardCheck check{
      .purpose = purpose, .run = run.record.id, .epoch = run.record.epoch, .step = step};
  check.worker = source;
  check.incarnation = FindWorker(source)->incarnation;
  check.files = std::move(files);
  check.copy = true;
  check.to = to;
  if (to) {
    double bytes = 0;
    for (const v1::CheckpointFile& file : check.files) bytes += static_cast<double>(file.bytes());
    const double line = LineBetween(run, *FindWorker(source), *FindWorker(*to));
    const double share =
        purpose == ShardCheck::Purpose::kCopy ? wire::kLeastCopyShare : kLeastMoveShare;
    const absl::Duration under_way =
        absl::Seconds(8 * bytes / (share * (line > 0 ? line : wire::kAssumedLineBitsPerSecond)));
    check.limit = std::min(kLongestTransfer, kTransferSlack + under_way) + kAnswerSlack;
  }
  StartCheck(std::move(check));
}

// Both ends get it. Where one of them has just gone, nothing is sent: LoseChecks ends the check.
void Core::SendTransfer(uint64_t id, const ShardCheck& check, v1::WorkerCommand to_source) {
  const Run& run = *FindRun(check.run);
  const Worker* source = FindWorker(*check.worker);
  const Worker* holder = FindWorker(*check.to);
  if (source == nullptr || !source->session || holder == nullptr || !holder->session) return;
  const StatusOr<LinkEnds> ends = PathBetween(run, *source, *holder);
  if (!ends.ok()) return;
  const bool paced = check.purpose == ShardCheck::Purpose::kCopy;
  v1::ShardPath path;
  path.set_transport(std::string(ToString(ends->transport)));
  path.set_link_secret(HmacSha256(run.record.link_secret, fmt::format("shards of check {}", id)));
  const std::vector<Endpoint> both[] = {FromProto(source->hello.endpoints()),
                                        FromProto(holder->hello.endpoints())};
  path.set_sealed(run.assignment().sealed || !ends->relays.empty() ||
                  SealsLinks(run.record.spec, both));
  for (std::string& way :
       WaysThrough(ends->relays, run.record.link_secret, fmt::format("shards of check {}", id))) {
    path.add_addresses(std::move(way));
  }
  path.set_limit_seconds(absl::ToDoubleSeconds(check.limit - kAnswerSlack));
  path.set_paced(paced);
  path.set_line_bits_per_second(LineBetween(run, *source, *holder));
  v1::WorkerCommand to_holder = CommandFor(check.run, check.epoch);
  v1::TakeShards& take = *to_holder.mutable_take_shards();
  take.set_check(id);
  take.set_step(check.step);
  for (const v1::CheckpointFile& file : check.files) *take.add_files() = file;
  *take.mutable_from() = path;
  *to_source.mutable_check_shards()->mutable_to() = path;
  const auto fill = [&](const Worker& peer, bool dials, v1::ShardPath* one) {
    one->set_peer_name(peer.hello.name());
    one->set_dial(dials);
    if (!dials) return;
    for (const Endpoint& endpoint : FromProto(peer.hello.endpoints())) {
      if (endpoint.transport != path.transport()) continue;
      for (const std::string& address : endpoint.addresses) one->add_addresses(address);
    }
  };
  fill(*source, ends->downstream_dials, take.mutable_from());
  fill(*holder, !ends->downstream_dials, to_source.mutable_check_shards()->mutable_to());
  Send(*holder, std::move(to_holder));
  Send(*source, std::move(to_source));
}

// What the plan knows of the slower interface; 0: nothing.
double Core::LineBetween(const Run& run, const Worker& source, const Worker& holder) const {
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

void Core::AfterCopy(Run& run, const ShardCheck& check, const std::string& failure) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, check.step);
  if (!failure.empty()) {
    // It is tried again, unless a newer set is there by then.
    if (check.step == run.copies_begun) run.copies_again = now_ + kCopyPause;
    // Interim copies come often: an event tells their first failure, not each.
    const bool interim = manifest != nullptr && manifest->interim();
    if (!std::exchange(run.copies_fail, true) || !interim) Log(&run, "checkpoint", failure);
    return;
  }
  if (manifest == nullptr || NewestSafe(run.record) != check.step) return;
  std::set<std::string> holders;
  for (const v1::CheckpointFile& file : manifest->files()) {
    for (const v1::ShardHolder& holder : file.holders()) {
      const bool writer = &holder == &file.holders(0);
      if (!writer && !holder.worker_id().empty()) holders.insert(holder.worker_name());
    }
  }
  if (holders.empty()) {
    Log(&run, "checkpoint",
        fmt::format("the coordinator has a copy of the checkpoint of step {}", check.step));
  } else if (const std::string who = Join({holders.begin(), holders.end()});
             !manifest->interim() || run.copies_fail || who != run.copies_with) {
    Log(&run, "checkpoint",
        fmt::format("copies of every stage at step {} are with {}{}", check.step, who,
                    manifest->interim() ? "; of later ones nothing is said" : ""));
    run.copies_with = who;
  }
  run.copies_fail = false;
  Changed(run);
  DropOutdated(run);
}

// Keeps the newest so many checkpoints that a user asked for, the newest set of all, the newest
// that is held twice, the one that is being copied, and the one that the run goes on from.
void Core::DropOutdated(Run& run) {
  std::vector<v1::CheckpointManifest>& all = run.record.checkpoints;
  const uint64_t safe = NewestSafe(run.record);
  const size_t most = std::max<size_t>(run.record.spec.checkpoint.keep, 1);
  // A newer set, left behind by a worker that was away, may be complete only now.
  const bool trains = run.record.state == RunState::kRunning;
  size_t kept = 0;
  std::vector<v1::CheckpointManifest> left, outdated;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const bool keeps =
        it == all.rbegin() || it->step() == safe || shards_.IsCopying(run.record.id, it->step()) ||
        (!trains && it->step() == run.record.step) || (!it->interim() && kept < most);
    if (keeps && !it->interim()) ++kept;
    (keeps ? left : outdated).push_back(std::move(*it));
  }
  std::reverse(left.begin(), left.end());
  all = std::move(left);
  if (outdated.empty()) return;
  for (const v1::CheckpointManifest& manifest : outdated) DropShards(run, manifest);
  Store(run);
}

}  // namespace longhaul::coordinator
