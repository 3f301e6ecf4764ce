#include "worker/data/window_source.h"

#include <utility>

namespace longhaul::worker {
namespace {

class FileWindows final : public WindowSource {
 public:
  FileWindows(std::shared_ptr<const TokenFile> file, uint32_t context)
      : file_(std::move(file)), context_(context) {}

  uint64_t WindowsOf(Text text) const override {
    return text == Text::kTraining ? file_->TrainingWindows(context_)
                                   : file_->ValidationWindows(context_);
  }
  Status Read(Text text, uint64_t window, std::span<int32_t> inputs,
              std::span<int32_t> targets) override {
    if (text == Text::kTraining) {
      file_->ReadTrainingWindow(window, context_, inputs, targets);
    } else {
      file_->ReadValidationWindow(window, context_, inputs, targets);
    }
    return absl::OkStatus();
  }
  void Expect(Text /*text*/, std::span<const uint64_t> /*windows*/) override {}

 private:
  const std::shared_ptr<const TokenFile> file_;
  const uint32_t context_;
};

}  // namespace

std::unique_ptr<WindowSource> WindowsOfFile(std::shared_ptr<const TokenFile> file,
                                            uint32_t context) {
  return std::make_unique<FileWindows>(std::move(file), context);
}

}  // namespace longhaul::worker
