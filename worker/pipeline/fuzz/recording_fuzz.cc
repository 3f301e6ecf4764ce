// Any bytes: a recording or refused. A recording has nothing between and behind its messages.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/fuzz/target.h"
#include "worker/pipeline/input_recorder.h"

LH_FUZZ_TARGET(recording) {
  using namespace longhaul;
  const auto messages = worker::ReadRecording(std::as_bytes(std::span(data, size)));
  if (!messages.ok()) return false;
  size_t bytes = 0;
  for (const worker::RecordedMessage& message : *messages) {
    bytes += wire::kTensorHeaderBytes + message.body.size();
  }
  if (bytes != size) std::abort();
  return true;
}
