#include "coordinator/planner/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "codec/codec.h"
#include "codec/registry.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/message_footprint.h"
#include "run/tokens/token_file.h"

namespace longhaul::coordinator {
namespace {

// `who` would keep so much for `codec`.
Status CheckCacheLimit(const RunSpec& spec, const MessageFootprint& footprint, std::string_view who,
                       std::string_view codec) {
  if (footprint.total() <= spec.links.cache_limit_bytes) return absl::OkStatus();
  const auto bytes = [](uint64_t count) {
    return fmt::format("{} ({} bytes)", FormatBytes(static_cast<double>(count)), count);
  };
  return absl::FailedPreconditionError(fmt::format(
      "{} needs {} of disk for the message buffers of {}: {} for every sample of the text and up "
      "to {} for the undo journal; links.cache_limit is {}: raise it, checkpoint more often, use "
      "less text, or choose a codec without buffers",
      who, bytes(footprint.total()), codec, bytes(footprint.records), bytes(footprint.journal),
      bytes(spec.links.cache_limit_bytes)));
}

const LinkException* ExceptionOf(const RunSpec& spec, const std::string& worker) {
  for (const auto& [name, exception] : spec.links.by_worker) {
    if (name == worker) return &exception;
  }
  return nullptr;
}

// The codecs of what `worker` sends.
const CodecPair& CodecsOf(const RunSpec& spec, const std::string& worker) {
  const LinkException* exception = ExceptionOf(spec, worker);
  return exception == nullptr ? spec.links.codecs : exception->codecs;
}

const v1::DataEndpoint* EndpointOf(const CandidateWorker& worker, TransportKind transport) {
  for (const v1::DataEndpoint& endpoint : worker.endpoints) {
    if (endpoint.transport() == ToString(transport)) return &endpoint;
  }
  return nullptr;
}

bool HasAddress(const CandidateWorker& worker, TransportKind transport) {
  const v1::DataEndpoint* endpoint = EndpointOf(worker, transport);
  return endpoint != nullptr && endpoint->addresses_size() > 0;
}

// Why `from` does not reach `to`, where that was tried in vain.
const std::string* ProblemOf(const CandidateWorker& from, const CandidateWorker& to,
                             TransportKind transport) {
  const auto problem = from.does_not_reach.find({to.id, transport});
  return problem == from.does_not_reach.end() ? nullptr : &problem->second;
}

bool MayReach(const CandidateWorker& from, const CandidateWorker& to, TransportKind transport) {
  return HasAddress(to, transport) && ProblemOf(from, to, transport) == nullptr;
}

uint64_t Windows(const PlanRequest& request) {
  return WindowsOf(request.data.tokens() - request.data.validation_tokens(),
                   request.spec.model.context);
}

// The mean over the run: a codec with state sends a sample whole when it comes for the first time.
uint64_t UsualBytes(const PlanRequest& request, const codec::Codec& codec) {
  const codec::Shape shape = BoundaryShape(request.spec);
  const auto most = static_cast<double>(codec.MaxEncodedBytes(shape));
  const auto least = static_cast<double>(codec.MinEncodedBytes(shape));
  return static_cast<uint64_t>(
      std::lround(least + (most - least) * ShareOfFirstVisits(request.spec, Windows(request))));
}

}  // namespace

StatusOr<TransportKind> LinkTransport(const RunSpec& spec, const CandidateWorker& upper,
                                      const CandidateWorker& lower) {
  const auto asked = [&](const CandidateWorker& worker) {
    const LinkException* exception = ExceptionOf(spec, worker.name);
    return exception == nullptr ? std::nullopt : exception->transport;
  };
  const std::optional<TransportKind> by_upper = asked(upper), by_lower = asked(lower);
  if (by_upper && by_lower && *by_upper != *by_lower) {
    return absl::FailedPreconditionError(fmt::format(
        "workers {} and {} are neighbours, and links.workers asks for {} at the one and for {} at "
        "the other; a link has one transport",
        upper.name, lower.name, ToString(*by_upper), ToString(*by_lower)));
  }
  const TransportKind transport = by_upper ? *by_upper : by_lower.value_or(spec.transport);
  for (const CandidateWorker* worker : {&upper, &lower}) {
    if (EndpointOf(*worker, transport) != nullptr) continue;
    std::string offered;
    for (const v1::DataEndpoint& endpoint : worker->endpoints) {
      offered += (offered.empty() ? "" : " and ") + endpoint.transport();
    }
    return absl::FailedPreconditionError(fmt::format(
        "the link between {} and {} is to go over {}, and worker {} has {}; start it with "
        "--transport {}, or change transport in the run file",
        upper.name, lower.name, ToString(transport), worker->name,
        offered.empty() ? "no data transport" : offered + " only", ToString(transport)));
  }
  return transport;
}

StatusOr<LinkEnds> EndsOf(const RunSpec& spec, const CandidateWorker& upper,
                          const CandidateWorker& lower) {
  LH_ASSIGN_OR_RETURN(const TransportKind transport, LinkTransport(spec, upper, lower));
  if (!HasAddress(upper, transport) && !HasAddress(lower, transport)) {
    return absl::FailedPreconditionError(
        fmt::format("workers {} and {} are neighbours and neither has an address at which the "
                    "other could reach it over {}; start one of them with --advertise host:port",
                    upper.name, lower.name, ToString(transport)));
  }
  if (MayReach(lower, upper, transport)) return LinkEnds{transport, true};
  if (MayReach(upper, lower, transport)) return LinkEnds{transport, false};
  std::string problems;
  for (const auto& [from, to] : {std::pair(&upper, &lower), std::pair(&lower, &upper)}) {
    const std::string* problem = ProblemOf(*from, *to, transport);
    if (problem != nullptr) problems += (problems.empty() ? "" : "; ") + *problem;
  }
  const bool grpc_works =
      transport != TransportKind::kGrpc && (MayReach(lower, upper, TransportKind::kGrpc) ||
                                            MayReach(upper, lower, TransportKind::kGrpc));
  return absl::FailedPreconditionError(fmt::format(
      "workers {} and {} are neighbours and cannot talk over {}: {}. {}", upper.name, lower.name,
      ToString(transport), problems,
      grpc_works
          ? "Nothing is known against grpc between them: set `transport: grpc` in the run file"
          : "Open the port of one of them to the other, or start it with --advertise "
            "host:port, an address that the other reaches"));
}

Status AddLinks(const PlanRequest& request, v1::Plan* plan) {
  const RunSpec& spec = request.spec;
  for (uint32_t boundary = 0; boundary + 1 < request.workers.size(); ++boundary) {
    const CandidateWorker& upper = request.workers[boundary];
    const CandidateWorker& lower = request.workers[boundary + 1];
    LH_ASSIGN_OR_RETURN(const LinkEnds ends, EndsOf(spec, upper, lower));
    LH_ASSIGN_OR_RETURN(const auto forward, codec::ParseCodec(CodecsOf(spec, upper.name).forward));
    LH_ASSIGN_OR_RETURN(const auto backward,
                        codec::ParseCodec(CodecsOf(spec, lower.name).backward));
    v1::LinkPlan& link = *plan->add_links();
    link.set_boundary(boundary);
    link.set_transport(std::string(ToString(ends.transport)));
    link.set_forward_codec(forward->name());
    link.set_backward_codec(backward->name());
    link.set_downstream_dials(ends.downstream_dials);
    link.set_forward_bytes(UsualBytes(request, *forward));
    link.set_backward_bytes(UsualBytes(request, *backward));
    link.set_forward_encode_seconds(upper.times.forward_encode());
    link.set_forward_decode_seconds(lower.times.forward_decode());
    link.set_backward_encode_seconds(lower.times.backward_encode());
    link.set_backward_decode_seconds(upper.times.backward_decode());
  }
  return absl::OkStatus();
}

Status AddMessages(const PlanRequest& request, v1::Plan* plan) {
  const RunSpec& spec = request.spec;
  const codec::Shape shape = BoundaryShape(spec);
  const auto stages = static_cast<uint32_t>(plan->stages_size());
  std::vector<MessageFootprint> footprints(stages);
  std::vector<std::string> codecs(stages);
  for (const v1::LinkPlan& link : plan->links()) {
    for (const std::string& text : {link.forward_codec(), link.backward_codec()}) {
      LH_ASSIGN_OR_RETURN(const auto codec, codec::ParseCodec(text));
      const size_t record_bytes = codec->MessageBytes(shape);
      if (record_bytes == 0) continue;
      if (spec.replay && !spec.replay->real_codecs) {
        return absl::FailedPreconditionError(fmt::format(
            "{} cannot be replayed as measured, because its blobs depend on what was sent before; "
            "set replay.codecs to real, or choose another codec",
            codec->name()));
      }
      const MessageFootprint one = FootprintOf(spec, Windows(request), record_bytes);
      for (const uint32_t stage : {link.boundary(), link.boundary() + 1}) {
        footprints[stage] += one;
        codecs[stage] = codec->name();
      }
    }
  }
  for (uint32_t stage = 0; stage < stages; ++stage) {
    const MessageFootprint& footprint = footprints[stage];
    v1::StagePlan& one = *plan->mutable_stages(static_cast<int>(stage));
    one.set_message_record_bytes(footprint.records);
    one.set_message_journal_bytes(footprint.journal);
    LH_RETURN_IF_ERROR(CheckCacheLimit(
        spec, footprint, fmt::format("stage {} on worker {}", stage, request.workers[stage].name),
        codecs[stage]));
  }
  return absl::OkStatus();
}

Status CheckMessageCache(const RunSpec& spec, uint64_t text_bytes) {
  const uint32_t stages = spec.pipeline.stages.value_or(2);
  if (stages < 2 || !spec.links.by_worker.empty() || spec.data.tokenizer != "bytes") {
    return absl::OkStatus();
  }
  // The tokenizer's arithmetic: the end of the text, rounded down.
  const uint64_t training_tokens =
      text_bytes - static_cast<uint64_t>(static_cast<double>(text_bytes) * spec.validation.share);
  const codec::Shape shape = BoundaryShape(spec);
  const uint64_t windows = WindowsOf(training_tokens, spec.model.context);
  MessageFootprint footprint;
  std::string name;
  for (const std::string& text : {spec.links.codecs.forward, spec.links.codecs.backward}) {
    LH_ASSIGN_OR_RETURN(const auto codec, codec::ParseCodec(text));
    const size_t record_bytes = codec->MessageBytes(shape);
    if (record_bytes == 0) continue;
    name = codec->name();
    // A stage in the middle has two boundaries.
    for (uint32_t boundary = 0; boundary < std::min(stages - 1, 2u); ++boundary) {
      footprint += FootprintOf(spec, windows, record_bytes);
    }
  }
  return CheckCacheLimit(spec, footprint, stages > 2 ? "a stage in the middle" : "a stage", name);
}

}  // namespace longhaul::coordinator
