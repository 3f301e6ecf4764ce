#include "run/schedule/one_step.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <utility>

#include "run/plan/chain.h"
#include "run/schedule/bound.h"
#include "run/schedule/fluid_network.h"
#include "run/schedule/policy.h"

namespace longhaul::schedule {
namespace {

constexpr double kNever = FluidNetwork::kNever;
constexpr uint32_t kEventsBetweenLooks = 1024;  // at whether somebody still wants the result

// Work of a stage's codec thread: the next tensor of that link.
struct CodecJob {
  uint32_t link;
  bool encode;
};

// One direction of one boundary. Its tensors are those of the step's slices, in the direction's
// order at every point of their way, so they are only counted.
struct LinkState {
  uint32_t sender = 0, receiver = 0;
  Direction direction = Direction::kForward;
  double bytes = 0, latency = 0, encode = 0, decode = 0;
  double tensors = 0;        // of a step
  double most = kUnlimited;  // bytes a second of it alone

  uint32_t encoded = 0, let = 0;  // gradients, and how many of them may leave
  uint32_t waiting = 0;           // for the transfer before them
  std::deque<double> arrivals;    // of what has left
  uint32_t undecoded = 0;         // of what has arrived
  uint32_t decoded = 0;
  double busy = 0, busy_since = 0;
};

struct StageState {
  StagePolicy policy;
  double forward = 0, backward = 0, optimizer = 0;
  double reduce = 0, reduce_last = 0, gather = 0;
  std::optional<Work> running;
  std::deque<CodecJob> codec_jobs;
  double compute = 0;
  // Times at which the step's phases of this stage begin or end.
  double first_forward_begins = kNever, passes_end = kNever;
  double tensors_left = 0;          // the last one
  double tied_arrives = 0;          // what the matrix's other end sends
  double gradients_whole = kNever;  // all sums are in them
  double norm_known = kNever;
};

// What a stage waits for while it computes nothing.
enum Idle : uint8_t { kNotIdle, kCodec, kAbove, kBelow, kIdleKinds };

// Four chains of comparisons: a single one would wait for itself.
double Least(const std::vector<double>& times) {
  std::array<double, 4> least = {kNever, kNever, kNever, kNever};
  const size_t whole = times.size() / least.size() * least.size();
  for (size_t i = 0; i < whole; i += least.size()) {
    for (size_t k = 0; k < least.size(); ++k) least[k] = std::min(least[k], times[i + k]);
  }
  for (size_t i = whole; i < times.size(); ++i) least[0] = std::min(least[0], times[i]);
  return std::min({least[0], least[1], least[2], least[3]});
}

class Run {
 public:
  explicit Run(const PipelineCost& cost) : cost_(cost), network_(cost) {
    const auto stages = static_cast<uint32_t>(cost.stages.size());
    for (uint32_t s = 0; s < stages; ++s) {
      const StageCost& stage = cost.stages[s];
      stages_.push_back({.policy = StagePolicy({.kind = cost.schedule,
                                                .stage = StageIndex(s),
                                                .stages = stages,
                                                .microbatches = cost.microbatches,
                                                .slices = cost.slices,
                                                .depth = stage.depth,
                                                .activation_lead = stage.activation_lead}),
                         .forward = absl::ToDoubleSeconds(stage.forward),
                         .backward = absl::ToDoubleSeconds(stage.backward),
                         .optimizer = absl::ToDoubleSeconds(stage.optimizer),
                         .reduce = absl::ToDoubleSeconds(stage.reduce),
                         .reduce_last = absl::ToDoubleSeconds(stage.reduce_last),
                         .gather = absl::ToDoubleSeconds(stage.gather)});
    }
    for (uint32_t b = 0; b < chain::Boundaries(stages); ++b) {
      const uint32_t upper = chain::UpperStage(b), lower = chain::LowerStage(b);
      AddLink(Direction::kForward, upper, lower, cost.boundaries[b].forward, cost.AllSlices());
      AddLink(Direction::kBackward, lower, upper, cost.boundaries[b].backward, cost.AllSlices());
    }
    if (cost.tied) {
      AddLink(Direction::kForward, 0, chain::LastStage(stages), cost.tied->forward, 1);
      AddLink(Direction::kBackward, chain::LastStage(stages), 0, cost.tied->backward, 1);
    }
    touched_.assign(stages, true);
    idle_.assign(stages, kNotIdle);
    idle_seconds_.resize(stages);
    compute_ends_.assign(stages, kNever);
    codec_ends_.assign(stages, kNever);
    arrives_.assign(links_.size(), kNever);
  }

  StatusOr<Simulation> Go(const std::stop_token& stop) {
    LH_RETURN_IF_ERROR(RunPasses(stop));
    SumGradients();
    AgreeOnNorm();
    return Result(StepOptimizers());
  }

 private:
  bool IsFirst(uint32_t s) const { return chain::IsFirst(s); }
  bool IsLast(uint32_t s) const { return chain::IsLast(s, static_cast<uint32_t>(stages_.size())); }

  void AddLink(Direction direction, uint32_t sender, uint32_t receiver, const FlowCost& flow,
               uint32_t tensors) {
    links_.push_back({.sender = sender,
                      .receiver = receiver,
                      .direction = direction,
                      .bytes = flow.bytes,
                      .latency = absl::ToDoubleSeconds(flow.latency),
                      .encode = absl::ToDoubleSeconds(flow.encode),
                      .decode = absl::ToDoubleSeconds(flow.decode),
                      .tensors = static_cast<double>(tensors),
                      .most = std::min({cost_.stages[sender].egress_bytes_per_second,
                                        cost_.stages[receiver].ingress_bytes_per_second,
                                        flow.bytes_per_second})});
  }
  // Behind the boundaries' links.
  uint32_t TiedLink(Direction direction) const {
    return LinkIndex(static_cast<uint32_t>(cost_.boundaries.size()), direction);
  }

  // ---- The phases of a step ----

  Status RunPasses(const std::stop_token& stop) {
    for (uint32_t event = 0;; ++event) {
      if (event % kEventsBetweenLooks == 0 && stop.stop_requested()) {
        return absl::CancelledError("the simulation was stopped: its result is not wanted");
      }
      for (uint32_t s = 0; s < stages_.size(); ++s) {
        if (!std::exchange(touched_[s], false)) continue;
        StartWhatCan(s);
        idle_[s] = IdleOf(s);
      }
      network_.Share(now_);
      const double next = NextEvent();
      if (next == kNever) break;
      AdvanceTo(next);
    }
    for (const StageState& stage : stages_) {
      if (!stage.policy.Done()) {
        return absl::InternalError("the schedule cannot finish: a stage waits for ever");
      }
    }
    return absl::OkStatus();
  }

  // A stage's gradients are whole when its last backward has ended, what the other end of a tied
  // matrix sends is there, and then what its replicas send.
  void SumGradients() {
    for (StageState& stage : stages_) {
      stage.gradients_whole = std::max(stage.passes_end, stage.tied_arrives);
      if (stage.reduce == 0) continue;
      stage.gradients_whole = std::max(stage.gradients_whole, stage.tensors_left) +
                              std::max(stage.reduce - stage.backward, stage.reduce_last);
    }
  }

  // Sums travel up, and each stage adds to them when its gradients are whole; so the first stage
  // knows the norm. It travels down in control messages.
  void AgreeOnNorm() {
    double known = stages_.back().gradients_whole;
    for (auto b = static_cast<uint32_t>(cost_.boundaries.size()); b-- > 0;) {
      known = std::max(stages_[chain::UpperStage(b)].gradients_whole,
                       known + absl::ToDoubleSeconds(cost_.boundaries[b].backward.latency));
    }
    stages_.front().norm_known = known + absl::ToDoubleSeconds(cost_.replicas_agree);
    for (uint32_t b = 0; b < cost_.boundaries.size(); ++b) {
      stages_[chain::LowerStage(b)].norm_known =
          stages_[chain::UpperStage(b)].norm_known +
          absl::ToDoubleSeconds(cost_.boundaries[b].forward.latency);
    }
  }

  // Returns the seconds of the step. Optimizers of later stages overlap with the next step's first
  // forwards, so only what outlasts these counts.
  double StepOptimizers() const {
    const StageState& first = stages_.front();
    double step = first.norm_known + first.optimizer + first.gather;
    for (uint32_t s = 1; s < stages_.size(); ++s) {
      const StageState& stage = stages_[s];
      const double ends =
          std::max(stage.norm_known, stage.gradients_whole) + stage.optimizer + stage.gather;
      step = std::max(step, ends - stage.first_forward_begins);
    }
    return step;
  }

  // ---- What happens while passes run ----

  void StartWhatCan(uint32_t s) {
    StageState& stage = stages_[s];
    if (!stage.running) {
      if (const auto work = stage.policy.Next()) {
        stage.policy.Begin(*work);
        stage.running = work;
        const double seconds = work->task == Task::kForward ? stage.forward : stage.backward;
        compute_ends_[s] = now_ + seconds;
        stage.compute += seconds;
        stage.first_forward_begins = std::min(stage.first_forward_begins, now_);
      }
    }
    if (codec_ends_[s] == kNever && !stage.codec_jobs.empty()) {
      const CodecJob& job = stage.codec_jobs.front();
      const LinkState& link = links_[job.link];
      codec_ends_[s] = now_ + (job.encode ? link.encode : link.decode);
    }
  }

  // What a stage waits for from now until its next event.
  Idle IdleOf(uint32_t s) const {
    const StageState& stage = stages_[s];
    if (stage.running || stage.first_forward_begins == kNever || stage.policy.Done()) {
      return kNotIdle;
    }
    const bool above = stage.policy.AwaitsInput();
    const uint32_t link = above ? LinkIndex(chain::BoundaryAbove(s), Direction::kForward)
                                : LinkIndex(chain::BoundaryBelow(s), Direction::kBackward);
    if (links_[link].undecoded > 0) return kCodec;
    return above ? kAbove : kBelow;
  }

  double NextEvent() const {
    return std::min(
        {Least(compute_ends_), Least(codec_ends_), Least(network_.ends()), Least(arrives_)});
  }

  void AdvanceTo(double time) {
    const double elapsed = time - now_;
    if (elapsed > 0) {
      for (size_t s = 0; s < idle_.size(); ++s) idle_seconds_[s][idle_[s]] += elapsed;
    }
    now_ = time;
    for (uint32_t link = 0; link < links_.size(); ++link) {
      if (network_.ends()[link] <= now_) FinishTransfer(link);
      while (arrives_[link] <= now_) Arrive(link);
    }
    for (uint32_t s = 0; s < stages_.size(); ++s) {
      const bool codec = codec_ends_[s] <= now_, compute = compute_ends_[s] <= now_;
      if (codec) FinishCodec(s);
      if (compute) FinishCompute(s);
      if (!codec && !compute) continue;
      touched_[s] = true;
      LetGradientsLeave(s);
    }
  }

  void LetGradientsLeave(uint32_t s) {
    if (IsFirst(s)) return;
    const uint32_t index = LinkIndex(chain::BoundaryAbove(s), Direction::kBackward);
    LinkState& link = links_[index];
    const uint32_t may_leave = stages_[s].policy.GradientsThatMayLeave();
    while (link.let < may_leave && link.let < link.encoded) {
      ++link.let;
      Send(index);
    }
  }

  void Send(uint32_t index) {
    LinkState& link = links_[index];
    if (network_.busy(index)) {
      ++link.waiting;
      return;
    }
    network_.Start(index, link.bytes, now_);
    link.busy_since = now_;
  }

  void FinishTransfer(uint32_t index) {
    LinkState& link = links_[index];
    network_.End(index);
    stages_[link.sender].tensors_left = now_;
    link.arrivals.push_back(now_ + link.latency);
    arrives_[index] = link.arrivals.front();
    link.busy += now_ - link.busy_since;
    if (link.waiting > 0) {
      --link.waiting;
      network_.Start(index, link.bytes, now_);
      link.busy_since = now_;
    }
  }

  void Arrive(uint32_t index) {
    LinkState& link = links_[index];
    link.arrivals.pop_front();
    arrives_[index] = link.arrivals.empty() ? kNever : link.arrivals.front();
    if (cost_.tied && index >= TiedLink(Direction::kForward)) {
      stages_[link.receiver].tied_arrives = now_;
      return;
    }
    ++link.undecoded;
    stages_[link.receiver].codec_jobs.push_back({index, false});
    touched_[link.receiver] = true;
  }

  void FinishCodec(uint32_t s) {
    StageState& stage = stages_[s];
    const CodecJob job = stage.codec_jobs.front();
    stage.codec_jobs.pop_front();
    codec_ends_[s] = kNever;
    LinkState& link = links_[job.link];
    if (job.encode) {
      if (link.direction == Direction::kBackward) {
        ++link.encoded;
      } else {
        Send(job.link);
      }
      return;
    }
    --link.undecoded;
    const Slice slice = SliceOrder(cost_.slices).At(link.decoded++, link.direction);
    if (link.direction == Direction::kBackward) {
      stage.policy.GradientReady(slice);
      return;
    }
    stage.policy.InputReady(slice);
  }

  void FinishCompute(uint32_t s) {
    StageState& stage = stages_[s];
    const Work work = *std::exchange(stage.running, std::nullopt);
    stage.policy.End(work);
    compute_ends_[s] = kNever;
    if (work.task == Task::kForward && !IsLast(s)) {
      stage.codec_jobs.push_back({LinkIndex(chain::BoundaryBelow(s), Direction::kForward), true});
    }
    if (work.task == Task::kBackward && !IsFirst(s)) {
      stage.codec_jobs.push_back({LinkIndex(chain::BoundaryAbove(s), Direction::kBackward), true});
    }
    if (!stage.policy.Done()) return;
    stage.passes_end = now_;
    if (cost_.tied && IsFirst(s)) Send(TiedLink(Direction::kForward));
    if (cost_.tied && IsLast(s)) Send(TiedLink(Direction::kBackward));
  }

  // ---- What came of it ----

  Simulation Result(double step) const {
    Simulation result;
    result.step = absl::Seconds(step);
    LowerBound bound = ComputeLowerBound(cost_);
    result.lower_bound = bound.step;
    result.bottleneck = std::move(bound.bottleneck);
    result.busiest = FindBusiestResource(cost_);
    for (uint32_t s = 0; s < stages_.size(); ++s) result.stages.push_back(UseOf(s, step));
    for (uint32_t b = 0; b < cost_.boundaries.size(); ++b) {
      result.boundaries.push_back({UseOfLink(LinkIndex(b, Direction::kForward), step),
                                   UseOfLink(LinkIndex(b, Direction::kBackward), step)});
    }
    if (cost_.tied) {
      result.tied = {UseOfLink(TiedLink(Direction::kForward), step),
                     UseOfLink(TiedLink(Direction::kBackward), step)};
    }
    return result;
  }

  StageUse UseOf(uint32_t s, double step) const {
    const StageState& stage = stages_[s];
    const double window = stage.passes_end - stage.first_forward_begins;
    // For the other end of a tied matrix, and first of all stages for the norm.
    const double sums = (IsFirst(s) ? stage.norm_known : stage.gradients_whole) - stage.passes_end;
    StageUse use;
    use.time = {.compute = absl::Seconds(stage.compute),
                .codec = absl::Seconds(idle_seconds_[s][kCodec]),
                // Then a stage waits for the one above alone: for the final gradient norm and then
                // for the next step's first activation.
                .wait_above = absl::Seconds(idle_seconds_[s][kAbove] + step - window - sums -
                                            stage.optimizer),
                .wait_below = absl::Seconds(idle_seconds_[s][kBelow] + sums),
                .optimizer = absl::Seconds(stage.optimizer)};
    if (step <= 0) return use;
    double sent = 0, received = 0;
    for (const LinkState& link : links_) {
      if (link.sender == s) sent += link.bytes * link.tensors;
      if (link.receiver == s) received += link.bytes * link.tensors;
    }
    const StageCost& cost = cost_.stages[s];
    use.egress_share = sent / cost.egress_bytes_per_second / step;
    use.ingress_share = received / cost.ingress_bytes_per_second / step;
    return use;
  }

  DirectionUse UseOfLink(uint32_t index, double step) const {
    if (step <= 0) return {};
    const LinkState& link = links_[index];
    return {.busy_share = link.busy / step,
            .rate_share = link.bytes * link.tensors / link.most / step};
  }

  const PipelineCost& cost_;
  FluidNetwork network_;
  std::vector<StageState> stages_;
  std::vector<LinkState> links_;
  double now_ = 0;
  // Every event reads these, so they stand apart in dense arrays, by stage and by link.
  std::vector<uint8_t> touched_;  // something happened to it at this moment
  std::vector<Idle> idle_;
  std::vector<std::array<double, kIdleKinds>> idle_seconds_;
  std::vector<double> compute_ends_, codec_ends_;
  std::vector<double> arrives_;  // the first of LinkState::arrivals
};

}  // namespace

StatusOr<Simulation> SimulateOneStep(const PipelineCost& cost, const std::stop_token& stop) {
  return Run(cost).Go(stop);
}

}  // namespace longhaul::schedule
