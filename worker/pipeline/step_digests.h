// Makes the signed part of a stage's step report: digests of what the stage sent, received and had
// (v1::StepDigests). Pure, apart from the signing function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/plan/plan.h"
#include "worker/pipeline/message_digests.h"

namespace longhaul::worker {

// Signs the body of digests with the member's key (proto/identity/signature.h). "": there is no
// key, or signing failed.
using SignDigests = std::function<std::string(std::string_view body)>;

class DigestSigner {
 public:
  // `sign`: null without TLS.
  DigestSigner(RunId run, Epoch epoch, Stamp stamp, CellId cell, SignDigests sign)
      : run_(std::move(run)), epoch_(epoch), stamp_(stamp), cell_(cell), sign_(std::move(sign)) {}

  v1::StepDigests Sign(Step step, const std::vector<v1::EdgeDigests>& edges,
                       std::optional<uint64_t> state_before,
                       std::optional<uint64_t> state_after) const;

 private:
  const RunId run_;
  const Epoch epoch_;
  const Stamp stamp_;
  const CellId cell_;
  const SignDigests sign_;
};

// The messages of one direction over an edge.
v1::EdgeDigests EdgeDigestsOf(EdgeId edge, Direction direction, bool sent,
                              const MessageDigests::OfStep& of_step);

}  // namespace longhaul::worker
