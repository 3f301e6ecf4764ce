#include "coordinator/state/shards/checkpoint_list.h"

#include <fmt/format.h>

#include "coordinator/state/ledger/manifests.h"
#include "coordinator/state/ledger/within_reach.h"

namespace longhaul::coordinator {

CheckpointList::CheckpointList(Ledger& ledger, Shards& shards) : ledger_(ledger), shards_(shards) {
  shards_.WhenDone(ShardCheck::Purpose::kVerify,
                   [this](Run& run, const ShardCheck& check, const std::string& /*failure*/) {
                     AnswerVerified(run, check.request);
                   });
}

void CheckpointList::On(event::CheckpointsAsked& asked) {
  const StatusOr<Run*> run = ledger_.RunCalled(asked.run);
  if (!run.ok()) {
    ledger_.Do(command::Reply<v1::CheckpointsReply>{asked.request, run.status()});
    return;
  }
  const Run* const found = *run;
  if (shards_.book().IsVerifying(asked.request)) return;  // the same request again
  if (!asked.verify && !asked.gather_step) {
    ledger_.Do(command::Reply<v1::CheckpointsReply>{asked.request, Render(*found, nullptr)});
    return;
  }
  if (asked.gather_step) {
    Gather(*found, asked.request, *asked.gather_step);
    return;
  }
  shards_.book().BeginVerification(asked.request);
  for (const v1::CheckpointManifest& manifest : found->record.checkpoints) {
    shards_.Check(*found, manifest, ShardCheck::Purpose::kVerify, asked.request);
  }
  // Nobody can be asked: then this is the answer.
  AnswerVerified(*found, asked.request);
}

void CheckpointList::Gather(const Run& run, RequestId request, uint64_t step) {
  const v1::CheckpointManifest* manifest =
      step > 0 ? FindCheckpoint(run.record, step) : NewestWhole(run.record);
  if (manifest == nullptr) {
    const std::string_view id = run.record.id.value();
    ledger_.Do(command::Reply<v1::CheckpointsReply>{
        request,
        absl::NotFoundError(
            step > 0 ? fmt::format("run {} has no checkpoint of step {}; `longhaul checkpoints {}` "
                                   "lists those that it has",
                                   id, step, id)
                     : fmt::format("run {} has no checkpoint that is whole; `longhaul "
                                   "checkpoints {}` says what there is",
                                   id, id))});
    return;
  }
  std::vector<v1::CheckpointFile> files;
  for (const v1::CheckpointFile& file : manifest->files()) {
    if (HoldsParameters(file) && !IsCopied(file)) files.push_back(file);
  }
  shards_.book().BeginVerification(request);
  shards_.AskForCopies(run, manifest->step(), files, ShardCheck::Purpose::kVerify, request);
  AnswerVerified(run, request);
}

void CheckpointList::AnswerVerified(const Run& run, RequestId request) {
  if (const auto verified = shards_.book().TakeVerified(request)) {
    ledger_.Do(command::Reply<v1::CheckpointsReply>{request, Render(run, &*verified)});
  }
}

v1::CheckpointsReply CheckpointList::Render(const Run& run, const VerifiedShards* verified) const {
  v1::CheckpointsReply reply;
  reply.set_run_id(run.record.id.value());
  reply.set_verified(verified != nullptr);
  const auto& all = run.record.checkpoints;
  for (auto manifest = all.rbegin(); manifest != all.rend(); ++manifest) {
    v1::CheckpointStatus& one = *reply.add_checkpoints();
    one.set_step(manifest->step());
    one.set_epoch(manifest->epoch());
    one.set_committed_unix_ms(manifest->committed_unix_ms());
    for (const v1::Cell& cell : manifest->cells()) {
      if (cell.id().replica() == 0) one.add_layers(cell.layers());
    }
    bool every = true;
    uint64_t bytes = 0;
    for (const v1::CheckpointFile& file : manifest->files()) {
      bytes += file.bytes();
      v1::ShardStatus& shard = *one.add_shards();
      shard.set_name(file.name());
      shard.set_stage(file.stage());
      shard.set_bytes(file.bytes());
      shard.set_sha256(file.sha256());
      shard.set_copied(IsCopied(file));
      bool any = false;
      for (const v1::ShardHolder& holder : file.holders()) {
        const bool seen = verified != nullptr &&
                          verified->contains({manifest->step(), holder.worker_id(), file.name()});
        any = any || seen;
        v1::ShardHolderStatus& status = *shard.add_holders();
        status.set_worker_id(holder.worker_id());
        status.set_worker_name(holder.worker_name());
        status.set_connected(holder.worker_id().empty() || IsFolder(holder.worker_id()) ||
                             IsConnected(ledger_, holder));
        status.set_verified(seen);
        status.set_problem(holder.problem());
      }
      every = every && any;
    }
    one.set_bytes(bytes);
    const v1::CheckpointFile* missing = UnreachableFile(ledger_, *manifest);
    if (const std::string damage = DamageOf(*manifest); !damage.empty()) {
      one.set_state("damaged");
      one.set_detail(damage);
    } else if (missing != nullptr) {
      one.set_state("unreachable");
      one.set_detail(fmt::format("{}, which holds {}, is not connected", HoldersText(*missing),
                                 missing->name()));
    } else {
      one.set_state(every ? "whole" : "committed");
    }
  }
  return reply;
}

}  // namespace longhaul::coordinator
