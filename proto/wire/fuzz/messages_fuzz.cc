// Any bytes as the small messages that stages of a run exchange beside tensors: of a step, of a
// round of samples, of codecs' state, of a tied matrix, of copies.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/fuzz/target.h"
#include "proto/wire/matrix_digest.h"
#include "proto/wire/message_state.h"
#include "proto/wire/sample_messages.h"
#include "proto/wire/step_message.h"
#include "proto/wire/transfer_word.h"

namespace longhaul::wire {
namespace {

using Bytes = std::span<const std::byte>;

// Every byte has a meaning: what was read is written as it was.
void MustBe(Bytes again, Bytes bytes) {
  if (!std::ranges::equal(again, bytes)) std::abort();
}

bool CheckStep(Bytes bytes) {
  const auto step = DecodeStepMessage(bytes);
  if (!step.ok()) return false;
  if (step->samples > kMostSampleRounds) std::abort();
  std::array<std::byte, kStepMessageBytes> out;
  EncodeStepMessage(*step, out);
  MustBe(out, bytes);
  return true;
}

bool CheckSamples(Bytes bytes) {
  const auto round = DecodeSampleRound(bytes);
  if (round.ok()) {
    if (round->lengths.size() > kMostRows || round->stops.size() > kMostStops) {
      std::abort();
    }
    MustBe(EncodeSampleRound(*round), bytes);
  }
  const auto sampled = DecodeSampledTokens(bytes);
  if (sampled.ok()) {
    if (sampled->tokens.size() > kMostRows) std::abort();
    MustBe(EncodeSampledTokens(*sampled), bytes);
  }
  return round.ok() || sampled.ok();
}

bool CheckDigests(Bytes bytes) {
  const auto state = DecodeMessageState(bytes);
  if (state.ok()) {
    std::array<std::byte, kMessageStateBytes> out;
    EncodeMessageState(*state, out);
    MustBe(out, bytes);
  }
  const auto digest = DecodeMatrixDigest(bytes);
  if (digest.ok()) {
    std::array<std::byte, kMatrixDigestBytes> out;
    EncodeMatrixDigest(*digest, out);
    MustBe(out, bytes);
  }
  return state.ok() || digest.ok();
}

void CheckTransfer(Bytes bytes) {
  const TransferWord word = DecodeTransferWord(bytes);
  if (word.refusal.size() > kMaxRefusalBytes) std::abort();
  const std::string again = EncodeTransferWord(word);
  if (DecodeTransferWord(std::as_bytes(std::span(again))) != word) std::abort();
}

}  // namespace
}  // namespace longhaul::wire

LH_FUZZ_TARGET(wire_messages) {
  using namespace longhaul::wire;  // NOLINT(google-build-using-namespace)
  const Bytes bytes = std::as_bytes(std::span(data, size));
  CheckTransfer(bytes);
  const bool step = CheckStep(bytes), samples = CheckSamples(bytes);
  return CheckDigests(bytes) || step || samples;
}
