// A run that trains in milliseconds: its run file, its text, and what a coordinator would say of
// it.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "codec/registry.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/chain.h"
#include "run/plan/plan.h"
#include "run/plan/proto/plan_proto.h"
#include "run/tokens/token_file.h"

namespace longhaul::worker {

inline constexpr char kTinyRun[] = R"(name: tiny
model: { layers: 2, hidden: 16, heads: 2, context: 8 }
data: { text: [text.txt] }
validation: { share: 0, every: 0 }
train: { steps: 3, microbatches: 2, dtype: fp32, schedule: { kind: constant, warmup: 0 } }
pipeline: { stages: 2, threads_per_stage: 1 }
links: { forward: none, backward: none }
checkpoint: { every: 0 }
)";

inline RunSpec TinySpec(const std::vector<std::string>& overrides = {}) {
  StatusOr<RunSpec> spec = ParseRunSpec(kTinyRun, "tiny.yaml", overrides);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

inline constexpr uint64_t kTinyTokens = 2000;

// Writes the text's tokens to `folder` under their content address, where a BlobFetcher of that
// folder finds them. Gives the address.
inline std::string WriteTinyTokens(const std::string& folder) {
  std::string text;
  for (int i = 0; i < static_cast<int>(kTinyTokens); ++i)
    text += static_cast<char>('a' + i * i % 26);
  EXPECT_TRUE(MakeDirectories(folder).ok());
  EXPECT_TRUE(WriteFileAtomic(folder + "/text.txt", text).ok());
  const std::string path = folder + "/tokens";
  EXPECT_TRUE(WriteTokenFile({folder + "/text.txt"}, "bytes", 0, path).ok());
  const StatusOr<std::string> hash = Sha256HexOfFile(path);
  EXPECT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(std::rename(path.c_str(), fmt::format("{}/{}", folder, *hash).c_str()), 0);
  return *hash;
}

// The hash of the assignment of an epoch.
inline std::string TinyHash(uint64_t epoch) {
  return fmt::format("{:<32}", epoch);
}

// A run over as many stages as there are `addresses`; the layers are shared out evenly.
inline Assignment TinyAssignment(const RunSpec& spec, uint64_t epoch,
                                 const std::string& tokens_sha256,
                                 const std::vector<std::string>& addresses) {
  const auto stages = static_cast<uint32_t>(addresses.size());
  const uint32_t layers = spec.model.layers / stages;
  Assignment assignment{
      .run = RunId(spec.name),
      .epoch = Epoch(epoch),
      .start_step = 0,
      .run_yaml = ToYaml(spec),
      .hash = TinyHash(epoch),
      .data = {.token_file_sha256 = tokens_sha256, .tokens = kTinyTokens, .vocabulary = 256},
      .cells = {},
      .edges = chain::MakeEdges(/*replicas=*/1, stages)};
  for (uint32_t stage = 0; stage < stages; ++stage) {
    Cell& cell = assignment.cells.emplace_back();
    cell.id = {.replica = 0, .stage = stage};
    cell.worker_name = fmt::format("worker{}", stage);
    cell.layers = {.first = stage * layers, .count = layers};
    cell.roles = {.embedding = chain::IsFirst(stage), .head = chain::IsLast(stage, stages)};
    cell.devices = {0};
    cell.setting = {.depth = 2};
    cell.endpoints = {{.transport = "ucx", .addresses = {addresses[stage]}}};
  }
  for (Edge& edge : assignment.edges) {
    edge.transport = "ucx";
    edge.to_dials = true;
    edge.forward.codec = edge.backward.codec = "none";
  }
  return assignment;
}

inline v1::WorkerCommand AssignOf(const Assignment& assignment, const CellId& cell) {
  v1::WorkerCommand command;
  command.set_run_id(assignment.run.value());
  command.set_epoch(assignment.epoch.value());
  command.set_stamp(assignment.stamp().value());
  v1::Assign& assign = *command.mutable_assign();
  *assign.mutable_assignment() = ToProto(assignment);
  *assign.mutable_cell() = ToProto(cell);
  assign.set_link_secret("a secret of the run");
  for (const Edge& edge : assignment.edges) {
    (*assign.mutable_edge_secrets())[edge.id.value()] = "a secret of the edge";
  }
  return command;
}
// `stage` of a run as of TinyAssignment.
inline v1::WorkerCommand AssignOf(const RunSpec& spec, uint64_t epoch, uint32_t stage,
                                  const std::string& tokens_sha256,
                                  const std::vector<std::string>& addresses) {
  return AssignOf(TinyAssignment(spec, epoch, tokens_sha256, addresses),
                  {.replica = 0, .stage = stage});
}

}  // namespace longhaul::worker
