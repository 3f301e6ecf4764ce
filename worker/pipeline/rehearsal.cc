#include "worker/pipeline/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/log.h"

namespace longhaul::worker {
namespace {

constexpr auto kKinds = std::to_array<std::pair<std::string_view, RehearsedKind>>({
    {"flip-sent", RehearsedKind::kFlipSent},
    {"flip-state", RehearsedKind::kFlipState},
    {"scale-sent", RehearsedKind::kScaleSent},
    {"withhold-digests", RehearsedKind::kWithholdDigests},
    {"malformed-digests", RehearsedKind::kMalformedDigests},
    {"stale-sent", RehearsedKind::kStaleSent},
    {"flip-layer", RehearsedKind::kFlipLayer},
    {"poison-optimizer", RehearsedKind::kPoisonOptimizer},
    {"lie-loss", RehearsedKind::kLieLoss},
    {"collude", RehearsedKind::kCollude},
    {"false-audit", RehearsedKind::kFalseAudit},
});

std::string Expected() {
  std::string kinds;
  for (const auto& [name, kind] : kKinds) {
    kinds += kinds.empty() ? "" : ", ";
    kinds += name;
  }
  return fmt::format(
      "one of {}, with any of step=N, until=N, times=N, direction=forward|backward and factor=F "
      "behind a colon, such as flip-sent:step=5,times=1",
      kinds);
}

// Splits at the first `separator`; the second part is empty without one.
std::pair<std::string_view, std::string_view> Split(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

template <class T>
bool ParseNumber(std::string_view text, T* number) {
  const char* const end = text.data() + text.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): `end` says where it ends
  const std::from_chars_result result = std::from_chars(text.data(), end, *number);
  return result.ec == std::errc() && result.ptr == end;
}

bool Set(std::string_view name, std::string_view value, RehearsedFault* fault) {
  if (name == "step") return ParseNumber(value, &fault->step);
  if (name == "until") return ParseNumber(value, &fault->until);
  if (name == "times") return ParseNumber(value, &fault->times);
  if (name == "factor") return ParseNumber(value, &fault->factor);
  if (name == "direction" && (value == "forward" || value == "backward")) {
    fault->direction = value == "forward" ? Direction::kForward : Direction::kBackward;
    return true;
  }
  return false;
}

StatusOr<RehearsedFault> ParseFault(std::string_view text) {
  auto [kind_name, options] = Split(text, ':');
  RehearsedFault fault;
  bool known = false;
  for (const auto& [name, kind] : kKinds) {
    if (name != kind_name) continue;
    fault.kind = kind;
    known = true;
  }
  while (known && !options.empty()) {
    const auto [option, rest] = Split(options, ',');
    const auto [name, value] = Split(option, '=');
    known = Set(name, value, &fault);
    options = rest;
  }
  if (!known) return InvalidArgument("--rehearse '{}': expected {}", text, Expected());
  return fault;
}

}  // namespace

StatusOr<std::shared_ptr<Rehearsal>> Rehearsal::Parse(const std::vector<std::string>& texts) {
  if (texts.empty()) return std::shared_ptr<Rehearsal>();
  std::vector<RehearsedFault> faults;
  for (const std::string& text : texts) {
    LH_ASSIGN_OR_RETURN(faults.emplace_back(), ParseFault(text));
  }
  return std::make_shared<Rehearsal>(faults);
}

Rehearsal::Rehearsal(const std::vector<RehearsedFault>& faults) {
  for (const RehearsedFault& fault : faults) {
    planned_.push_back(std::make_unique<Planned>());
    planned_.back()->fault = fault;
  }
}

const RehearsedFault* Rehearsal::Due(RehearsedKind kind, Step step,
                                     std::optional<Direction> direction) {
  for (const std::unique_ptr<Planned>& one : planned_) {
    const RehearsedFault& fault = one->fault;
    if (fault.kind != kind || step.value() < fault.step || step.value() > fault.until) continue;
    if (fault.direction && direction && *fault.direction != *direction) continue;
    if (one->done.fetch_add(1) >= fault.times) continue;
    return &fault;
  }
  return nullptr;
}

void Rehearsal::OnTensor(Step step, Direction direction, std::span<float> values) {
  if (values.empty()) return;
  if (Plans(RehearsedKind::kStaleSent)) {
    const std::lock_guard lock(mutex_);
    std::vector<float> now(values.begin(), values.end());
    std::vector<float>& before = sent_[direction];
    if (before.size() == values.size() &&
        Due(RehearsedKind::kStaleSent, step, direction) != nullptr) {
      std::ranges::copy(before, values.begin());
    }
    before = std::move(now);
  }
  const RehearsedFault* const fault = Due(RehearsedKind::kScaleSent, step, direction);
  if (fault == nullptr) return;
  for (float& value : values) value *= static_cast<float>(fault->factor);
}

void Rehearsal::OnBlob(Step step, Direction direction, std::span<std::byte> blob) {
  if (blob.empty() || Due(RehearsedKind::kFlipSent, step, direction) == nullptr) return;
  // The last byte is payload, which every codec takes.
  blob.back() ^= std::byte{1};
  LogWarning("rehearsal: a bit of a message of step {} is flipped", step.value());
}

bool Rehearsal::Plans(RehearsedKind kind) const {
  return std::ranges::any_of(planned_, [&](const auto& one) { return one->fault.kind == kind; });
}

Status Rehearsal::OnUpdate(Step step, Stage& stage) {
  const bool flips = Due(RehearsedKind::kFlipLayer, step) != nullptr;
  const RehearsedFault* const poisons = Due(RehearsedKind::kPoisonOptimizer, step);
  if (!flips && poisons == nullptr) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, stage.Snapshot());
  const std::lock_guard lock(mutex_);
  if (flips && layer_ && !snapshot.parameters.empty()) {
    std::vector<float>& values = snapshot.parameters.front().values;
    for (size_t i = 0; i < values.size() && i < layer_->values.size(); ++i) {
      values[i] = 2 * layer_->values[i] - values[i];
    }
  }
  if (poisons != nullptr) {
    for (NamedArray& moment : snapshot.moments) {
      if (moment.name.ends_with("_sq")) continue;
      for (float& value : moment.values) value *= static_cast<float>(poisons->factor);
    }
  }
  LogWarning("rehearsal: the state after step {} is another one than was computed", step.value());
  return stage.Restore(snapshot);
}

std::optional<std::vector<std::byte>> Rehearsal::OnReceived(Step step, Direction direction,
                                                            std::span<const std::byte> blob) {
  if (blob.empty() || Due(RehearsedKind::kCollude, step, direction) == nullptr) {
    return std::nullopt;
  }
  std::vector<std::byte> said(blob.begin(), blob.end());
  said.back() ^= std::byte{1};  // undoes OnBlob
  return said;
}

void Rehearsal::OnAudit(v1::AuditReport* report) {
  if (report->steps().empty()) return;
  v1::StepReport& first = *report->mutable_steps(0);
  if (Due(RehearsedKind::kFalseAudit, Step(first.step())) == nullptr) return;
  first.set_squared_norm(2 * first.squared_norm() + 1);
}

Status Rehearsal::OnState(Step step, Stage& stage) {
  if (Plans(RehearsedKind::kFlipLayer)) {
    LH_ASSIGN_OR_RETURN(const StageSnapshot now, stage.Snapshot());
    const std::lock_guard lock(mutex_);
    if (!now.parameters.empty()) layer_ = now.parameters.front();
  }
  if (Due(RehearsedKind::kFlipState, step) == nullptr) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(StageSnapshot snapshot, stage.Snapshot());
  if (snapshot.parameters.empty() || snapshot.parameters.front().values.empty()) {
    return FailedPrecondition("--rehearse flip-state: the stage has no parameter to flip a bit of");
  }
  float& value = snapshot.parameters.front().values.front();
  value = std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U);
  LogWarning("rehearsal: a bit of {} is flipped before step {}", snapshot.parameters.front().name,
             step.value());
  return stage.Restore(snapshot);
}

void Rehearsal::OnReport(v1::StepReport* report) {
  const Step step(report->step());
  if (report->has_loss()) {
    const RehearsedFault* const lies = Due(RehearsedKind::kLieLoss, step);
    if (lies != nullptr) report->set_loss(report->loss() * lies->factor);
  }
  if (Due(RehearsedKind::kWithholdDigests, step) != nullptr) report->clear_digests();
  if (!report->has_digests()) return;
  if (Due(RehearsedKind::kMalformedDigests, step) != nullptr) {
    report->mutable_digests()->set_body("\xff");
  }
}

}  // namespace longhaul::worker
