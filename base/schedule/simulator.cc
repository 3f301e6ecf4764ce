#include "base/schedule/simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "base/schedule/bound.h"
#include "base/schedule/policy.h"

namespace longhaul::schedule {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double Seconds(absl::Duration duration) {
  return absl::ToDoubleSeconds(duration);
}

// A tensor on its way from one stage to its neighbour.
struct Message {
  uint32_t boundary = 0;
  Direction direction = Direction::kForward;
  Microbatch microbatch;
  uint32_t sender() const { return direction == Direction::kForward ? boundary : boundary + 1; }
  uint32_t receiver() const { return direction == Direction::kForward ? boundary + 1 : boundary; }
};

// Work of a stage's codec thread.
struct CodecJob {
  Message message;
  bool encode = true;
};

// One direction of one boundary: messages leave in order, the head one is the flow.
struct LinkDirection {
  std::deque<Message> queue;
  double remaining_bytes = 0;
  double rate = 0;  // bytes per second, set by ShareBandwidth
};

struct StageState {
  StagePolicy policy;
  std::optional<Work> running;
  double compute_ends = kNever;
  std::deque<CodecJob> codec_queue;
  double codec_ends = kNever;
  double compute_busy = 0, egress_bytes = 0, ingress_bytes = 0;
  double first_forward_begins = kNever;
  double done_at = kNever;
  std::deque<Message> held;  // encoded gradients that may not leave yet
};

struct Arrival {
  double time;
  Message message;
};

// The stage above `stage` has all its inputs.
struct Notice {
  double time;
  uint32_t stage;
};

class Run {
 public:
  explicit Run(const PipelineCost& cost) : cost_(cost), links_(2 * cost.boundaries.size()) {
    const auto stages = static_cast<uint32_t>(cost.stages.size());
    for (uint32_t s = 0; s < stages; ++s) {
      stages_.push_back({.policy = StagePolicy({.kind = cost.schedule,
                                                .stage = StageIndex(s),
                                                .stages = stages,
                                                .microbatches = cost.microbatches,
                                                .depth = cost.stages[s].depth,
                                                .order = cost.order})});
    }
  }

  StatusOr<Simulation> Go() {
    while (true) {
      StartWhatCan();
      const double next = NextEvent();
      if (next == kNever) break;
      AdvanceTo(next);
    }
    for (const StageState& stage : stages_) {
      if (!stage.policy.Done()) {
        return absl::InternalError("the schedule cannot finish: a stage waits for ever");
      }
    }
    return Result();
  }

 private:
  LinkDirection& LinkOf(const Message& message) {
    return links_[2 * message.boundary + (message.direction == Direction::kForward ? 0 : 1)];
  }
  double BytesOf(const Message& message) const {
    const BoundaryCost& boundary = cost_.boundaries[message.boundary];
    return message.direction == Direction::kForward ? boundary.forward_bytes
                                                    : boundary.backward_bytes;
  }
  double CapOf(const Message& message) const {
    const BoundaryCost& boundary = cost_.boundaries[message.boundary];
    return message.direction == Direction::kForward ? boundary.forward_bytes_per_second
                                                    : boundary.backward_bytes_per_second;
  }
  double LatencyOf(const Message& message) const {
    const BoundaryCost& boundary = cost_.boundaries[message.boundary];
    return Seconds(message.direction == Direction::kForward ? boundary.forward_latency
                                                            : boundary.backward_latency);
  }
  double CodecSeconds(const CodecJob& job) const {
    const BoundaryCost& boundary = cost_.boundaries[job.message.boundary];
    if (job.message.direction == Direction::kForward) {
      return Seconds(job.encode ? boundary.forward_encode : boundary.forward_decode);
    }
    return Seconds(job.encode ? boundary.backward_encode : boundary.backward_decode);
  }

  void StartWhatCan() {
    for (size_t s = 0; s < stages_.size(); ++s) {
      StageState& stage = stages_[s];
      if (!stage.running) {
        if (const auto work = stage.policy.Next()) {
          stage.policy.Begin(*work);
          stage.running = work;
          const double seconds = Seconds(work->task == Task::kForward ? cost_.stages[s].forward
                                                                      : cost_.stages[s].backward);
          stage.compute_ends = now_ + seconds;
          stage.compute_busy += seconds;
          stage.first_forward_begins = std::min(stage.first_forward_begins, now_);
        }
      }
      if (stage.codec_ends == kNever && !stage.codec_queue.empty()) {
        stage.codec_ends = now_ + CodecSeconds(stage.codec_queue.front());
      }
    }
    ShareBandwidth();
  }

  // Max-min fairness by progressive filling: the interface with the least left for each of its
  // unfixed flows fixes them.
  void ShareBandwidth() {
    const size_t stages = stages_.size();
    std::vector<double> egress(stages), ingress(stages);
    for (size_t s = 0; s < stages; ++s) {
      egress[s] = cost_.stages[s].egress_bytes_per_second;
      ingress[s] = cost_.stages[s].ingress_bytes_per_second;
    }
    std::vector<LinkDirection*> open;
    for (LinkDirection& link : links_) {
      link.rate = 0;
      if (!link.queue.empty()) open.push_back(&link);
    }
    while (!open.empty()) {
      std::vector<uint32_t> out(stages, 0), in(stages, 0);
      for (const LinkDirection* link : open) {
        ++out[link->queue.front().sender()];
        ++in[link->queue.front().receiver()];
      }
      double share = kNever;
      for (size_t s = 0; s < stages; ++s) {
        if (out[s] > 0) share = std::min(share, egress[s] / out[s]);
        if (in[s] > 0) share = std::min(share, ingress[s] / in[s]);
      }
      for (const LinkDirection* link : open) share = std::min(share, CapOf(link->queue.front()));
      std::vector<LinkDirection*> still_open;
      std::vector<double> egress_used(stages, 0), ingress_used(stages, 0);
      for (LinkDirection* link : open) {
        const Message& message = link->queue.front();
        const double own =
            std::min({egress[message.sender()] / out[message.sender()],
                      ingress[message.receiver()] / in[message.receiver()], CapOf(message)});
        if (share == kNever || own <= share * (1 + 1e-12)) {
          link->rate = share;
          egress_used[message.sender()] += share;
          ingress_used[message.receiver()] += share;
        } else {
          still_open.push_back(link);
        }
      }
      for (size_t s = 0; s < stages; ++s) {
        if (share == kNever) break;
        egress[s] = std::max(0.0, egress[s] - egress_used[s]);
        ingress[s] = std::max(0.0, ingress[s] - ingress_used[s]);
      }
      open = std::move(still_open);
    }
  }

  static double FlowSeconds(const LinkDirection& link) {
    if (link.remaining_bytes <= 0 || std::isinf(link.rate)) return 0;
    return link.remaining_bytes / link.rate;
  }

  double NextEvent() const {
    double next = kNever;
    for (const StageState& stage : stages_) {
      next = std::min({next, stage.compute_ends, stage.codec_ends});
    }
    for (const LinkDirection& link : links_) {
      if (!link.queue.empty()) next = std::min(next, now_ + FlowSeconds(link));
    }
    for (const Arrival& arrival : arrivals_) next = std::min(next, arrival.time);
    for (const Notice& notice : notices_) next = std::min(next, notice.time);
    return next;
  }

  void AdvanceTo(double time) {
    const double elapsed = time - now_;
    std::vector<LinkDirection*> finished;
    for (LinkDirection& link : links_) {
      if (link.queue.empty()) continue;
      // The very sum that NextEvent() compared, so that the flow that made the event ends.
      if (now_ + FlowSeconds(link) <= time) {
        finished.push_back(&link);
      } else {
        link.remaining_bytes -= link.rate * elapsed;
      }
    }
    now_ = time;
    for (LinkDirection* link : finished) FinishFlow(link);
    for (size_t i = 0; i < arrivals_.size();) {
      if (arrivals_[i].time > now_) {
        ++i;
        continue;
      }
      const Message message = arrivals_[i].message;
      arrivals_.erase(arrivals_.begin() + static_cast<std::ptrdiff_t>(i));
      stages_[message.receiver()].codec_queue.push_back({message, false});
    }
    std::erase_if(notices_, [this](const Notice& notice) {
      if (notice.time > now_) return false;
      stages_[notice.stage].policy.UpstreamHasAllInputs();
      return true;
    });
    for (uint32_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].codec_ends <= now_) FinishCodec(s);
      if (stages_[s].compute_ends <= now_) FinishCompute(s);
      LetGradientsLeave(s);
    }
  }

  void LetGradientsLeave(uint32_t s) {
    StageState& stage = stages_[s];
    if (!stage.policy.GradientsMayLeave()) return;
    for (const Message& message : std::exchange(stage.held, {})) StartFlow(message);
  }

  void StartFlow(const Message& message) {
    LinkDirection& link = LinkOf(message);
    if (link.queue.empty()) link.remaining_bytes = BytesOf(message);
    link.queue.push_back(message);
  }

  void FinishFlow(LinkDirection* link) {
    const Message message = link->queue.front();
    link->queue.pop_front();
    const double bytes = BytesOf(message);
    stages_[message.sender()].egress_bytes += bytes;
    stages_[message.receiver()].ingress_bytes += bytes;
    if (!link->queue.empty()) link->remaining_bytes = BytesOf(link->queue.front());
    arrivals_.push_back({now_ + LatencyOf(message), message});
    if (message.direction == Direction::kForward) stages_[message.sender()].policy.ActivationSent();
  }

  void FinishCodec(uint32_t s) {
    StageState& stage = stages_[s];
    const CodecJob job = stage.codec_queue.front();
    stage.codec_queue.pop_front();
    stage.codec_ends = kNever;
    if (job.encode) {
      if (job.message.direction == Direction::kBackward) {
        stage.held.push_back(job.message);
      } else {
        StartFlow(job.message);
      }
    } else if (job.message.direction == Direction::kForward) {
      stage.policy.InputReady(job.message.microbatch);
      if (stage.policy.HasAllInputs() && s + 1 < stages_.size()) {
        notices_.push_back({now_ + Seconds(cost_.boundaries[s].forward_latency), s + 1});
      }
    } else {
      stage.policy.GradientReady(job.message.microbatch);
    }
  }

  void FinishCompute(uint32_t s) {
    StageState& stage = stages_[s];
    const Work work = *stage.running;
    stage.policy.End(work);
    stage.running.reset();
    stage.compute_ends = kNever;
    if (work.task == Task::kForward && s + 1 < stages_.size()) {
      stage.codec_queue.push_back({{s, Direction::kForward, work.microbatch}, true});
    }
    if (work.task == Task::kBackward && s > 0) {
      stage.codec_queue.push_back({{s - 1, Direction::kBackward, work.microbatch}, true});
    }
    if (stage.policy.Done()) stage.done_at = now_;
  }

  // Stage 0 knows the norm when its backward ends; it travels down in control messages. The
  // optimizers of later stages overlap with the next step's first forwards, so only what outlasts
  // those counts.
  Simulation Result() const {
    double norm_at = stages_[0].done_at;
    double step = norm_at + Seconds(cost_.stages[0].optimizer);
    for (size_t s = 1; s < stages_.size(); ++s) {
      norm_at += Seconds(cost_.boundaries[s - 1].forward_latency);
      const double optimizer_end =
          std::max(norm_at, stages_[s].done_at) + Seconds(cost_.stages[s].optimizer);
      step = std::max(step, optimizer_end - stages_[s].first_forward_begins);
    }
    Simulation result;
    result.step = absl::Seconds(step);
    const LowerBound bound = ComputeLowerBound(cost_);
    result.lower_bound = bound.step;
    result.bottleneck = bound.bottleneck;
    for (size_t s = 0; s < stages_.size(); ++s) {
      const StageState& stage = stages_[s];
      const StageCost& cost = cost_.stages[s];
      if (step <= 0) {
        result.stages.push_back({});
        continue;
      }
      result.stages.push_back(
          {.compute_share = stage.compute_busy / step,
           .egress_share = stage.egress_bytes / cost.egress_bytes_per_second / step,
           .ingress_share = stage.ingress_bytes / cost.ingress_bytes_per_second / step});
    }
    return result;
  }

  const PipelineCost& cost_;
  std::vector<StageState> stages_;
  std::vector<LinkDirection> links_;
  std::vector<Arrival> arrivals_;
  std::vector<Notice> notices_;
  double now_ = 0;
};

Status CheckCost(const PipelineCost& cost) {
  if (cost.stages.empty() || cost.microbatches == 0) {
    return absl::InvalidArgumentError("a pipeline needs at least one stage and one microbatch");
  }
  if (cost.boundaries.size() + 1 != cost.stages.size()) {
    return absl::InvalidArgumentError(fmt::format("expected {} boundaries for {} stages, got {}",
                                                  cost.stages.size() - 1, cost.stages.size(),
                                                  cost.boundaries.size()));
  }
  for (const StageCost& stage : cost.stages) {
    if (cost.order == SendOrder::kActivationsFirst &&
        (cost.schedule == ScheduleKind::kOneFOneB || stage.depth < cost.microbatches)) {
      return absl::InvalidArgumentError(
          "to send all activations first, every stage needs a depth of all microbatches");
    }
    if (stage.forward < absl::ZeroDuration() || stage.backward < absl::ZeroDuration() ||
        stage.optimizer < absl::ZeroDuration() || !(stage.egress_bytes_per_second > 0) ||
        !(stage.ingress_bytes_per_second > 0) || stage.depth == 0) {
      return absl::InvalidArgumentError(
          "a stage needs times that are not negative, rates above 0 and a depth of 1 or more");
    }
  }
  for (const BoundaryCost& boundary : cost.boundaries) {
    if (!(boundary.forward_bytes >= 0) || !(boundary.backward_bytes >= 0) ||
        !(boundary.forward_bytes_per_second > 0) || !(boundary.backward_bytes_per_second > 0) ||
        std::min({boundary.forward_latency, boundary.backward_latency, boundary.forward_encode,
                  boundary.forward_decode, boundary.backward_encode, boundary.backward_decode}) <
            absl::ZeroDuration()) {
      return absl::InvalidArgumentError(
          "a boundary needs bytes and times that are not negative and rates above 0");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Simulation> Simulate(const PipelineCost& cost) {
  LH_RETURN_IF_ERROR(CheckCost(cost));
  return Run(cost).Go();
}

}  // namespace longhaul::schedule
