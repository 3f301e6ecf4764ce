// Run files for tests that read them: the shortest one, and one with every key.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "run/file/run_spec.h"

namespace longhaul {

inline constexpr std::string_view kMinimal = R"(name: tiny-wan
model: { layers: 8, hidden: 256, heads: 8, context: 256 }
data: { text: [corpus/*.txt] }
train: { steps: 200, microbatches: 16 }
)";

inline constexpr std::string_view kEveryKey = R"(name: tiny-wan
model:    { family: llama, layers: 8, hidden: 256, heads: 8, context: 256, tied: true, vocabulary: 300, kv_heads: 4, intermediate: 90, rope_theta: 2e4, norm_epsilon: 3e-6, qkv_bias: true }
data:     { text: [corpus/*.txt, "a \"b\\.txt"], tokenizer: bytes, seed: 18446744073709551615 }
validation: { share: 0.1, every: 7, samples: 9, clean: always, at_start: true }
train:
  steps: 200
  microbatches: 16
  microbatch_size: 3
  dtype: bf16
  seed: 5
  deterministic: true
  on_nonfinite: skip
  optimizer: { kind: muon, lr: 1.2345678901234567e-3, betas: [0.8, 0.97], epsilon: 1e-6, weight_decay: 0.3, clip_norm: 0, momentum: 0.9, moments: bf16 }
  schedule: { kind: wsd, warmup: 12, final_ratio: 0.25, decay: 0.3 }
pipeline: { stages: 1, schedule: 1f1b, send_order: as-ready, recompute: stage, threads_per_stage: 2, depth: 4, slices: 16 }
transport: ucx
links:
  forward: none
  backward: "fixed:bits=6"
  measure: false
  workers: { worker2: { forward: tah }, "worker 3": { backward: bf16, transport: grpc } }
checkpoint: { every: 5, keep: 3, keep_copy: true, at_end: false }
recovery: { attempts: 7, every: 12, spares: 2 }
peer_timeout: 2500ms
session_timeout: 5s
reattach_timeout: 90s
)";

inline std::string ErrorOf(std::string_view yaml, const std::vector<std::string>& overrides = {}) {
  const auto spec = ParseRunSpec(yaml, "run.yaml", overrides);
  if (spec.ok()) return "no error";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(spec.status()));
}

}  // namespace longhaul
