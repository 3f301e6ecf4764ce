// A run that trains in milliseconds: its run file, its text, and what a coordinator would say of
// it.
#ifndef LONGHAUL_TESTS_UNIT_WORKER_TINY_RUN_H_
#define LONGHAUL_TESTS_UNIT_WORKER_TINY_RUN_H_

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
#include "run/tokens/token_file.h"

namespace longhaul::worker {

inline constexpr char kTinyRun[] = R"(name: tiny
model: { layers: 2, hidden: 16, heads: 2, context: 8 }
data: { text: [text.txt] }
validation: { share: 0, every: 0 }
train: { steps: 3, microbatches: 2, schedule: { kind: constant, warmup: 0 } }
pipeline: { stages: 2, threads_per_stage: 1 }
links: { forward: none, backward: none }
checkpoint: { every: 0 }
)";

inline RunSpec TinySpec(const std::vector<std::string>& overrides = {}) {
  StatusOr<RunSpec> spec = ParseRunSpec(kTinyRun, "tiny.yaml", overrides, codec::CheckCodec);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *std::move(spec);
}

// Writes the text's tokens to `folder` under their content address, where a BlobFetcher of that
// folder finds them. Gives the address.
inline std::string WriteTinyTokens(const std::string& folder) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>('a' + i * i % 26);
  EXPECT_TRUE(MakeDirectories(folder).ok());
  EXPECT_TRUE(WriteFileAtomic(folder + "/text.txt", text).ok());
  const std::string path = folder + "/tokens";
  EXPECT_TRUE(WriteTokenFile({folder + "/text.txt"}, "bytes", 0, path).ok());
  const StatusOr<std::string> hash = Sha256HexOfFile(path);
  EXPECT_TRUE(hash.ok()) << hash.status();
  EXPECT_EQ(std::rename(path.c_str(), fmt::format("{}/{}", folder, *hash).c_str()), 0);
  return *hash;
}

// `stage` of a run over as many stages as there are `addresses`; the layers are shared out evenly.
inline v1::WorkerCommand AssignOf(const RunSpec& spec, uint64_t epoch, uint32_t stage,
                                  const std::string& tokens_sha256,
                                  const std::vector<std::string>& addresses) {
  v1::WorkerCommand command;
  command.set_run_id(spec.name);
  command.set_epoch(epoch);
  v1::Assign& assign = *command.mutable_assign();
  assign.set_stage(stage);
  assign.set_link_secret("a secret of the run");
  v1::Plan& plan = *assign.mutable_plan();
  plan.set_run_id(spec.name);
  plan.set_epoch(epoch);
  plan.set_run_yaml(ToYaml(spec));
  plan.mutable_data()->set_token_file_sha256(tokens_sha256);
  plan.mutable_data()->set_vocabulary(256);
  const auto stages = static_cast<uint32_t>(addresses.size());
  const uint32_t layers = spec.model.layers / stages;
  for (uint32_t i = 0; i < stages; ++i) {
    v1::StagePlan* one = plan.add_stages();
    one->set_stage(i);
    one->set_worker_name(fmt::format("worker{}", i));
    one->set_first_layer(i * layers);
    one->set_layers(layers);
    one->set_depth(2);
    one->set_threads(1);
    v1::DataEndpoint* endpoint = one->add_endpoints();
    endpoint->set_transport("ucx");
    endpoint->add_addresses(addresses[i]);
    if (i + 1 == stages) break;
    v1::LinkPlan* link = plan.add_links();
    link->set_boundary(i);
    link->set_transport("ucx");
    link->set_forward_codec("none");
    link->set_backward_codec("none");
    link->set_downstream_dials(true);
  }
  return command;
}

}  // namespace longhaul::worker

#endif  // LONGHAUL_TESTS_UNIT_WORKER_TINY_RUN_H_
