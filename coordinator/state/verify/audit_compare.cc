#include "coordinator/state/verify/audit_compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>

namespace longhaul::coordinator {
namespace {

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// "": the same.
std::string Number(std::string_view what, double said, double audited) {
  if (SameBits(said, audited)) return "";
  return fmt::format("{} was {} and should be {}", what, said, audited);
}

const v1::EdgeDigests* FindEdge(const v1::DigestBody& body, const v1::EdgeDigests& like) {
  for (const v1::EdgeDigests& one : body.edges()) {
    if (one.edge() == like.edge() && one.forward() == like.forward() && one.sent() == like.sent()) {
      return &one;
    }
  }
  return nullptr;
}

std::string Messages(const v1::DigestBody& said, const v1::DigestBody& audited) {
  for (const v1::EdgeDigests& should : audited.edges()) {
    const v1::EdgeDigests* const is = FindEdge(said, should);
    const std::string name =
        fmt::format("{} that it {} over edge {}", should.forward() ? "activations" : "gradients",
                    should.sent() ? "sent" : "received", should.edge());
    if (is == nullptr) return fmt::format("it has no digests of {}", name);
    if (is->messages() != should.messages() || is->digests_size() != should.digests_size()) {
      return fmt::format("it reported {} {}, and there should be {}", is->messages(), name,
                         should.messages());
    }
    const auto [mine, theirs] =
        std::mismatch(is->digests().begin(), is->digests().end(), should.digests().begin());
    if (mine == is->digests().end()) continue;
    const auto place = mine - is->digests().begin();
    return fmt::format("the digest of {}, number {} of {}, should be another one", name, place + 1,
                       is->digests_size());
  }
  if (said.has_state_after() && audited.has_state_after() &&
      said.state_after() != audited.state_after()) {
    return "the digest of its parameters and optimizer state should be another one";
  }
  return "";
}

std::string Difference(const v1::StepReport& said, const v1::StepReport& audited) {
  if (said.skipped() != audited.skipped()) {
    return said.skipped() ? "it was skipped and should not be" : "it should be skipped";
  }
  std::string what;
  if (audited.has_loss()) what = Number("the loss", said.loss(), audited.loss());
  if (what.empty()) {
    v1::DigestBody is, should;
    if (!is.ParseFromString(said.digests().body())) return "its digests cannot be read";
    should.ParseFromString(audited.digests().body());
    what = Messages(is, should);
  }
  if (what.empty()) {
    what = Number("its part of the squared gradient norm", said.squared_norm(),
                  audited.squared_norm());
  }
  if (what.empty() && audited.has_norm()) {
    what = Number("the gradient norm", said.gradient_norm(), audited.gradient_norm());
  }
  if (what.empty() && audited.has_norm()) {
    what = Number("the learning rate", said.learning_rate(), audited.learning_rate());
  }
  return what;
}

}  // namespace

std::string WhyIncomparable(const AuditedWork& said, const AuditedWork& audited) {
  if (said.steps.size() != audited.steps.size()) {
    return fmt::format("{} steps were reported and {} were computed again", said.steps.size(),
                       audited.steps.size());
  }
  for (size_t i = 0; i < said.steps.size(); ++i) {
    const v1::StepReport &one = said.steps[i], &other = audited.steps[i];
    if (one.step() != other.step()) {
      return fmt::format("step {} was reported where step {} was computed again", one.step(),
                         other.step());
    }
    if (one.numerics() == 0 || one.numerics() != other.numerics()) {
      return "the two workers have other devices, threads or libraries, or some that compute sums "
             "in any order, so nothing promises the same bits";
    }
  }
  return "";
}

std::optional<AuditDifference> DifferenceOf(const AuditedWork& said, const AuditedWork& audited) {
  for (size_t i = 0; i < said.steps.size(); ++i) {
    std::string what = Difference(said.steps[i], audited.steps[i]);
    if (!what.empty()) return AuditDifference{said.steps[i].step(), std::move(what)};
  }
  const uint64_t last = said.steps.empty() ? 0 : said.steps.back().step();
  for (const v1::CheckpointFile& should : audited.files) {
    const auto is = std::ranges::find_if(
        said.files, [&](const auto& file) { return file.name() == should.name(); });
    if (is != said.files.end() && is->sha256() == should.sha256()) continue;
    return AuditDifference{
        last, fmt::format("{} of its state should have another content", should.name())};
  }
  return std::nullopt;
}

}  // namespace longhaul::coordinator
