// SimWorker: checks, copies and takes over shards of checkpoints.
#include <string>
#include <utility>

#include "tests/sim/coordinator/sim_worker.h"

namespace longhaul::coordinator::sim {

// On a thread of its own, whatever the agent does.
void SimWorker::HandleCheckShards(const v1::WorkerCommand& command) {
  const v1::CheckShards& asked = command.check_shards();
  if (asked.has_to() && !world_->takes.contains(asked.check())) {
    // Both dial and expect for a while.
    const MonoTime now = world_->timeline.now();
    const auto [first, is_new] = world_->gives.try_emplace({index_, asked.check()}, now);
    if (now - first->second < absl::Seconds(20)) {
      After(absl::Milliseconds(200), [this, command] { HandleCheckShards(command); });
      return;
    }
  }
  const absl::Duration takes = world_->random.Between(absl::Milliseconds(10), absl::Seconds(3));
  After(takes, [this, command] {
    const v1::CheckShards& check = command.check_shards();
    v1::WorkerMessage message;
    v1::ShardsChecked& answer = *message.mutable_shards_checked();
    answer.set_check(check.check());
    for (const v1::CheckpointFile& file : check.files()) {
      v1::ShardState& state = *answer.add_shards();
      state.set_name(file.name());
      const auto content =
          disk().Find({command.run_id(), check.step(), file.stage(), file.replica()});
      if (!content) {
        state.set_problem("it is missing");
      } else if (*content != file.sha256()) {
        state.set_problem("its hash is another");
      } else if (check.has_to_folder()) {
        state.set_copied(!world_->StoreIsAway());
        if (state.copied()) {
          const std::string address = check.to_folder().address() + file.name();
          world_->objects[address] = file.sha256();
          world_->objects_harmed.erase(address);
        } else {
          state.set_copy_error("nobody reaches the store");
        }
      } else if (check.has_to()) {
        const auto taker = world_->takes.find(check.check());
        if (taker == world_->takes.end()) {
          state.set_copy_error("nobody expects it");
        } else {
          Disk& other = world_->disks[taker->second.worker];
          const ShardName name{command.run_id(), check.step(), file.stage(), file.replica()};
          other.Write(name, file.sha256());
          other.Sync(name);
          state.set_copied(true);
        }
      } else if (check.copy()) {
        state.set_copied(world_->send_copy(id(), file.sha256()));
        if (!state.copied()) state.set_copy_error("nobody answers");
      }
    }
    Say(KeyOf(command), std::move(message));
  });
}

// A newer epoch ends it: its entry in `takes` is gone then.
void SimWorker::HandleFetch(const v1::WorkerCommand& command) {
  const absl::Duration takes = world_->random.Between(absl::Milliseconds(10), absl::Seconds(3));
  After(takes, [this, command] {
    const v1::TakeShards& take = command.take_shards();
    if (world_->takes.erase(take.check()) == 0) return;
    v1::WorkerMessage message;
    v1::ShardsChecked& answer = *message.mutable_shards_checked();
    answer.set_check(take.check());
    for (const v1::CheckpointFile& file : take.files()) {
      v1::ShardState& state = *answer.add_shards();
      state.set_name(file.name());
      const auto object = world_->objects.find(take.from_folder().address() + file.name());
      if (world_->StoreIsAway()) {
        state.set_copy_error("nobody reaches the store");
      } else if (object == world_->objects.end()) {
        state.set_problem("it is missing");
      } else if (object->second != file.sha256()) {
        state.set_problem("its hash is another");
      } else {
        const ShardName name{command.run_id(), take.step(), file.stage(), file.replica()};
        disk().Write(name, file.sha256());
        disk().Sync(name);
        state.set_copied(true);
      }
    }
    Say(KeyOf(command), std::move(message));
  });
}

}  // namespace longhaul::coordinator::sim
