// A store that takes every shard and has none.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/shard_store.h"

namespace longhaul::worker {

class NoShards : public ShardStore {
 public:
  StatusOr<std::vector<ShardFile>> Write(const RunId&, const ShardOwner&,
                                         const StageSnapshot&) override {
    return std::vector<ShardFile>{{"stage.params.safetensors", 1, "hash"}};
  }
  StatusOr<std::unique_ptr<ShardWriter>> Take(const RunId&, Step, const ShardFile&) override {
    return absl::UnimplementedError("takes none of others");
  }
  StatusOr<std::string> PathOf(const RunId&, Step, const std::string&) const override {
    return absl::NotFoundError("none");
  }
  Status Check(const RunId&, Step, const ShardFile&) const override {
    return absl::NotFoundError("none");
  }
  StatusOr<StageSnapshot> Read(const RunId&, Step, const std::vector<ShardFile>&) const override {
    return absl::NotFoundError("none");
  }
  StatusOr<std::optional<Step>> Oldest(const RunId&) const override { return std::nullopt; }
  Status Drop(const RunId&, Step) override { return absl::OkStatus(); }
  Status DropOthers(const RunId&, const std::set<Step>&) override { return absl::OkStatus(); }
  Status DropRun(const RunId&) override { return absl::OkStatus(); }
};

}  // namespace longhaul::worker
