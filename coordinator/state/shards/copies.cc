#include "coordinator/state/shards/copies.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"
#include "coordinator/state/text.h"

namespace longhaul::coordinator {

namespace {

// How long to wait after a copy that failed.
constexpr absl::Duration kCopyPause = absl::Seconds(30);

}  // namespace

Copies::Copies(Ledger& ledger, const WorkerLinks& links, const Spares& spares, Shards& shards)
    : ledger_(ledger), links_(links), spares_(spares), shards_(shards) {
  shards_.WhenDone(ShardCheck::Purpose::kCopy,
                   [this](Run& run, const ShardCheck& check, const std::string& failure) {
                     AfterCopy(run, check, failure);
                   });
}

void Copies::OnMove(Run& run, const Transition& row) {
  if (row.trigger == Trigger::kResumed) return of_.Forget(run.record.id);
  // Whoever held the newest set may have gone.
  if (row.to == RunState::kPreparing) of_[run].begun = 0;
}

void Copies::Advance() {
  for (Run* run : ledger_.Active()) {
    if (HasStages(run->record.state) && run->assignment().copy_every > 0) Begin(*run);
  }
}

void Copies::Begin(Run& run) {
  if (run.record.checkpoints.empty() || shards_.book().IsCopying(run.record.id)) return;
  const v1::CheckpointManifest& manifest = run.record.checkpoints.back();
  OfRun& of = of_[run];
  const bool again = manifest.step() == of.begun && of.again && ledger_.now() >= *of.again;
  if (manifest.step() <= of.begun && !again) return;
  of.begun = manifest.step();
  of.again.reset();
  // By source and receiver; nullopt: the coordinator.
  std::map<std::pair<WorkerId, std::optional<WorkerId>>, std::vector<v1::CheckpointFile>> transfers;
  const bool apart = SpansMachines(ledger_, run);
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsCopied(file) || IsHeldTwice(ledger_, file, apart)) continue;
    const Worker* source = SourceOf(ledger_, file);
    if (source == nullptr) continue;
    const Worker* holder = HolderFor(run, *source);
    const auto to = holder == nullptr ? std::nullopt : std::optional(holder->id);
    transfers[{source->id, to}].push_back(file);
  }
  for (auto& [ends, files] : transfers) {
    shards_.StartTransfer(run, manifest.step(), ShardCheck::Purpose::kCopy, ends.first, ends.second,
                          std::move(files));
  }
}

// A spare; else the neighbour that gets least; else another stage's worker on another machine; else
// the coordinator. Whoever is on another machine than `source` comes first.
Worker* Copies::HolderFor(Run& run, const Worker& source) {
  const bool apart = SpansMachines(ledger_, run);
  Worker* holder = HolderAmong(run, source, apart);
  return holder == nullptr && apart ? HolderAmong(run, source, /*apart=*/false) : holder;
}

Worker* Copies::HolderAmong(Run& run, const Worker& source, bool apart) {
  const auto may_hold = [&](const Worker& worker) {
    return worker.id != source.id && !worker.leaves_at && (!apart || AreApart(source, worker)) &&
           links_.PathBetween(run, source, worker).ok();
  };
  for (Worker* spare : spares_.SparesOf(run)) {
    if (may_hold(*spare)) return spare;
  }
  const StageRecord* stage = ledger_.StageOf(run, source);
  if (stage == nullptr) return nullptr;
  Worker* best = nullptr;
  double least = 0;
  const auto consider = [&](const StageRecord& peer) {
    Worker* worker = ledger_.LiveWorkerOf(peer.worker, peer.incarnation);
    if (worker == nullptr || !may_hold(*worker)) return;
    const auto& cells = run.record.plan->prediction.cells;
    const double gets = peer.place < cells.size() ? cells[peer.place].ingress_share : 0;
    if (best != nullptr && gets >= least) return;
    best = worker;
    least = gets;
  };
  for (const Edge& edge : run.assignment().edges) {
    if (edge.from == stage->id || edge.to == stage->id) consider(*run.Find(edge.PeerOf(stage->id)));
  }
  if (best != nullptr || !apart) return best;
  for (const StageRecord& peer : run.stages) consider(peer);
  return best;
}

void Copies::SaveFrom(Run& run, const v1::CheckpointManifest& manifest, const Worker& source) {
  std::vector<v1::CheckpointFile> files;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsHeldBy(file, source.id.value()) && !IsCopied(file) &&
        !std::ranges::any_of(file.holders(), [&](const v1::ShardHolder& holder) {
          const Worker* worker = ledger_.FindWorker(WorkerId(holder.worker_id()));
          return holder.problem().empty() && worker != nullptr && worker->session &&
                 !worker->leaves_at;
        })) {
      files.push_back(file);
    }
  }
  if (files.empty()) return;
  const Worker* holder = HolderFor(run, source);
  ledger_.Log(
      &run, "checkpoint",
      "{} shards of the checkpoint of step {} go from worker {}, which is leaving, to {}",
      files.size(), manifest.step(), ledger_.Label(source),
      holder == nullptr ? "the coordinator" : fmt::format("worker {}", ledger_.Label(*holder)));
  shards_.StartTransfer(run, manifest.step(), ShardCheck::Purpose::kCopy, source.id,
                        holder == nullptr ? std::nullopt : std::optional(holder->id),
                        std::move(files));
}

void Copies::KeepAtCoordinator(const Run& run, const v1::CheckpointManifest& manifest) {
  KeepAtCoordinator(run, manifest, /*only_of_worker=*/"");
}

void Copies::KeepAtCoordinator(const Worker& worker,
                               const std::set<std::pair<RunId, uint64_t>>& copying) {
  // Each hello comes here, so runs are not sorted that have nothing to copy.
  std::map<uint64_t, const Run*> runs;
  for (const auto& [id, run] : ledger_.runs()) {
    const RunRecord& record = run.record;
    if (record.spec.checkpoint.keep_copy && !record.checkpoints.empty()) runs[run.order] = &run;
  }
  for (const auto& [order, run] : runs) {
    for (const v1::CheckpointManifest& manifest : run->record.checkpoints) {
      if (copying.contains({run->record.id, manifest.step()})) continue;
      KeepAtCoordinator(*run, manifest, worker.id.value());
    }
  }
}

void Copies::KeepAtCoordinator(const Run& run, const v1::CheckpointManifest& manifest,
                               const std::string& only_of_worker) {
  if (!run.record.spec.checkpoint.keep_copy) return;
  std::vector<v1::CheckpointFile> files;
  for (const v1::CheckpointFile& file : manifest.files()) {
    if (IsCopied(file)) continue;
    if (only_of_worker.empty() || IsHeldBy(file, only_of_worker)) files.push_back(file);
  }
  shards_.AskForCopies(run, manifest.step(), files, ShardCheck::Purpose::kCopy);
}

void Copies::AfterCopy(Run& run, const ShardCheck& check, const std::string& failure) {
  const v1::CheckpointManifest* manifest = FindCheckpoint(run.record, check.step);
  OfRun& of = of_[run];
  if (!failure.empty()) {
    // It is tried again, unless a newer set is there by then.
    if (check.step == of.begun) of.again = ledger_.now() + kCopyPause;
    // Interim copies come often: an event tells their first failure, not each.
    const bool interim = manifest != nullptr && manifest->interim();
    if (!std::exchange(of.fail, true) || !interim) ledger_.Log(&run, "checkpoint", failure);
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
    ledger_.Log(&run, "checkpoint", "the coordinator has a copy of the checkpoint of step {}",
                check.step);
  } else if (const std::string who = Join({holders.begin(), holders.end()});
             !manifest->interim() || of.fail || who != of.with) {
    ledger_.Log(&run, "checkpoint", "copies of every stage at step {} are with {}{}", check.step,
                who, manifest->interim() ? "; of later ones nothing is said" : "");
    of.with = who;
  }
  of.fail = false;
  ledger_.Changed(run);
  DropOutdated(run);
}

void Copies::DropOutdated(Run& run) {
  std::vector<v1::CheckpointManifest>& all = run.record.checkpoints;
  const uint64_t safe = NewestSafe(run.record), stored = NewestStored(run.record);
  const size_t most = std::max<size_t>(run.record.spec.checkpoint.keep, 1);
  // A newer set, left behind by a worker that was away, may be complete only now.
  const bool trains = run.record.state == RunState::kRunning;
  size_t kept = 0;
  std::vector<v1::CheckpointManifest> left, outdated;
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const bool keeps = it == all.rbegin() || it->step() == safe || it->step() == stored ||
                       it->step() == run.storing || run.audited.contains(it->step()) ||
                       shards_.book().IsCopying(run.record.id, it->step()) ||
                       (!trains && it->step() == run.record.step) ||
                       (!it->interim() && kept < most);
    if (keeps && !it->interim()) ++kept;
    (keeps ? left : outdated).push_back(std::move(*it));
  }
  std::reverse(left.begin(), left.end());
  all = std::move(left);
  if (outdated.empty()) return;
  for (const v1::CheckpointManifest& manifest : outdated) shards_.Drop(run, manifest);
  ledger_.Store(run);
}

}  // namespace longhaul::coordinator
