// The text that a run is trained on, cut into windows. A window has `context` input tokens; the
// target of each input is the next token.
//
// Thread-safe, except that only one thread at a time may call Read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "run/tokens/token_file.h"

namespace longhaul::worker {

enum class Text : uint8_t { kTraining, kValidation };

class SetChunks;

class WindowSource {
 public:
  virtual ~WindowSource() = default;
  virtual uint64_t WindowsOf(Text text) const = 0;
  // Reads a window. `window`: its index. `inputs` and `targets` have room for `context` ids each.
  // The loss of a target -1 does not count. May block while chunks are fetched. kUnavailable or
  // kDataLoss: the data cannot be had.
  virtual Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
                      std::span<int32_t> targets) = 0;
  // Announces the windows that will be read next, in this order. Only a hint.
  virtual void Expect(Text text, std::span<const uint64_t> windows) = 0;
  // Returns the chunks of the data sets, which other workers may ask for; null if the text is a
  // token file.
  virtual std::shared_ptr<SetChunks> chunks() const { return nullptr; }
};

// Windows of a complete token file.
std::unique_ptr<WindowSource> WindowsOfFile(std::shared_ptr<const TokenFile> file,
                                            uint32_t context);

}  // namespace longhaul::worker
