// Samples between two steps: rounds of passes in which the pipeline continues texts.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "worker/pipeline/executor.h"
#include "worker/pipeline/sample_round.h"

namespace longhaul::worker {
namespace {

// The coordinator takes a report of 64 KiB at most, whatever the vocabulary and the prompts are.
constexpr size_t kMostPromptShown = 400, kMostText = 2000;  // bytes
constexpr size_t kMostPromptIds = 3000;                     // of all prompts

// Cuts at a whole character of UTF-8.
std::string Cut(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  text.resize(limit);
  return text + "...";
}

}  // namespace

Status Executor::Handle(SamplesRequested& asked) {
  if (!first() || options_.cell.replica > 0) return absl::OkStatus();
  // The coordinator asks again after it has lost the session for a while.
  const bool waits = std::ranges::any_of(
      sample_requests_, [&](const auto& one) { return one.request == asked.request; });
  if (waits) return absl::OkStatus();
  if (sample_requests_.size() >= wire::kMostSampleRounds) {
    ReportSamples(asked, nullptr, "other samples wait already");
  } else {
    sample_requests_.push_back(std::move(asked));
  }
  return absl::OkStatus();
}

bool Executor::SamplesFollow() const {
  return SamplesAfter(options_.spec, step_) || (samples_asked_ && samples_asked_->first == step_);
}

Status Executor::TakeSamplesIfDue() {
  const bool asked = samples_asked_ && samples_asked_->first == step_;
  const uint32_t rounds = asked ? std::exchange(samples_asked_, std::nullopt)->second : 0;
  const bool scheduled = SamplesAfter(options_.spec, step_);
  if ((rounds == 0 && !scheduled) || options_.cell.replica > 0) return absl::OkStatus();
  sample_passes_ = 0;
  if (scheduled) {
    const SamplesRequested own = SamplesOf(options_.spec);
    LH_RETURN_IF_ERROR(RunSampleRound(first() ? &own : nullptr));
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    LH_RETURN_IF_ERROR(RunSampleRound(first() ? &sample_requests_.front() : nullptr));
    if (first()) sample_requests_.pop_front();
  }
  ForgetTimes();
  return absl::OkStatus();
}

Status Executor::RunSampleRound(const SamplesRequested* request) {
  wire::SampleRound shape;
  std::string problem;
  if (request != nullptr) {
    problem = ProblemOf(*request, options_.spec, options_.vocabulary);
    shape = request->round;
    for (const auto& ids : request->prompts) {
      shape.lengths.push_back(static_cast<uint32_t>(ids.size()));
    }
    // The stages below have been told of a round: they get one without passes.
    if (!problem.empty()) shape = {};
  } else {
    while (rounds_arrived_.empty()) LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_INPUT));
    const SampleRoundArrived arrived = std::move(rounds_arrived_.front());
    rounds_arrived_.pop_front();
    if (arrived.step != step_) {
      return Internal("expected samples after step {}, got those after step {}", step_.value(),
                      arrived.step.value());
    }
    shape = arrived.round;
  }
  if (!last()) down_->SendSampleRound(step_, shape);
  if (shape.tokens > 0) {
    LH_ASSIGN_OR_RETURN(SampleRound round, SampleRound::Create(shape, options_.spec));
    round_ = std::make_unique<SampleRound>(std::move(round));
    if (request != nullptr) round_->SetPrompts(request->prompts);
    while (!round_->is_over()) LH_RETURN_IF_ERROR(RunSamplePass());
    if (round_->is_nonfinite()) {
      problem = "the model's outputs are not finite; training has diverged";
    }
  }
  if (request != nullptr) ReportSamples(*request, round_.get(), problem);
  round_.reset();
  return absl::OkStatus();
}

Status Executor::RunSamplePass() {
  schedule::PolicyOptions options = TrainingPolicy();
  options.microbatches = round_->microbatches();
  options.activation_lead = 0;
  options.forward_only = true;
  now_ = Begin(Pass{step_, PassKind::kSampling, sample_passes_++}, options);
  LH_RETURN_IF_ERROR(RunPass());
  now_.reset();
  // The last stage has taken the tokens. All stages hear of them in turn, the first one last.
  wire::SampledTokens sampled;
  if (last()) {
    sampled = round_->Sampled();
  } else {
    while (!sampled_) LH_RETURN_IF_ERROR(WaitForEvent(v1::Span::WAIT_INPUT));
    if (sampled_->step != step_) {
      return Internal("expected tokens of samples after step {}, got those after step {}",
                      step_.value(), sampled_->step.value());
    }
    sampled = std::exchange(sampled_, std::nullopt)->sampled;
  }
  if (!first()) up_->SendSampledTokens(step_, sampled);
  return round_->Append(sampled);
}

StatusOr<std::optional<BoundaryTensor>> Executor::SampleForward(Slice slice, Stage::Input input) {
  Stage& model = resident_.ModelFor(step_);
  if (first()) input.tokens = round_->TokensOf(slice.microbatch);
  if (options_.spec.data.mask_documents) input.documents = round_->Documents();
  if (!last()) {
    double loss = 0;
    return model.Evaluate(slice, input, &loss);
  }
  LH_ASSIGN_OR_RETURN(const std::vector<float> logits,
                      model.EvaluateLogits(slice, input, round_->PlacesIn(slice)));
  LH_RETURN_IF_ERROR(round_->AddLogits(slice, logits));
  return std::nullopt;
}

void Executor::ReportSamples(const SamplesRequested& request, const SampleRound* round,
                             const std::string& problem) {
  v1::WorkerMessage message;
  v1::SampleReport& report = *message.mutable_samples();
  report.set_request(request.request);
  report.set_step(step_.value());
  report.set_problem(problem);
  const std::vector<std::string>& texts = options_.spec.samples.prompts;
  size_t prompt_ids = 0;
  for (const auto& ids : request.prompts) prompt_ids += ids.size();
  for (size_t row = 0; problem.empty() && row < round->sampled().size(); ++row) {
    const std::vector<uint32_t>&prompt = request.prompts[row], &ids = round->sampled()[row];
    v1::Sample& sample = *report.add_samples();
    sample.mutable_ids()->Add(ids.begin(), ids.end());
    if (options_.sample_text) {
      sample.set_prompt(Cut(options_.sample_text->Of(prompt), kMostPromptShown));
      sample.set_text(Cut(options_.sample_text->Of(ids), kMostText));
    }
    if (request.request == 0 && row < texts.size()) {
      sample.set_prompt(Cut(PrintableLines(texts[row]), kMostPromptShown));
    }
    if (request.request > 0 && prompt_ids <= kMostPromptIds) {
      sample.mutable_prompt_ids()->Add(prompt.begin(), prompt.end());
    }
  }
  options_.report(std::move(message));
}

}  // namespace longhaul::worker
