// Exports for programs of run files, out of the coordinator's copies of a checkpoint.
#include "coordinator/hooks/hook_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>

#include "base/file.h"
#include "run/model/family.h"
#include "run/published/safetensors.h"
#include "tests/support/temp_dir.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class HookRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    blobs_ = *BlobStore::Open(folder_.path() + "/blobs");
    copies_ = *BlobStore::Open(folder_.path() + "/copies");
    spec_.name = "tiny";
    spec_.model.layers = 2;
    spec_.model.hidden = 16;
    spec_.model.heads = 2;
    spec_.model.context = 8;
    Start();
  }
  void Start() {
    runner_ = std::make_unique<HookRunner>(folder_.path() + "/hooks", blobs_.get(), copies_.get(),
                                           [this](const Event& event) {
                                             const std::lock_guard lock(mutex_);
                                             ended_.push_back(std::get<event::HookEnded>(event));
                                             changed_.notify_all();
                                           });
  }
  // A request for a checkpoint whose parameters are 0, 1, 2, ... in each tensor.
  command::RunHook Request(const std::string& run, const std::string& script) {
    spec_.hooks.on_checkpoint = {"sh", "-c", script};
    command::RunHook request{
        .run = RunId(run), .step = 5, .spec = spec_, .vocabulary = 32, .files = {}};
    std::vector<published::TensorEntry> entries;
    std::string values;
    ModelSpec model = spec_.model;
    model.vocabulary = model.VocabularyOver(32);
    for (const auto& parameter : model::ParametersOf(
             model, *model.vocabulary,
             {.first_layer = 0, .layers = model.layers, .embedding = true, .head = true})) {
      const auto count = static_cast<size_t>(parameter.parameter.shape.elements());
      entries.push_back(
          {.name = parameter.Name(), .type = "F32", .shape = {static_cast<int64_t>(count)}});
      for (size_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(i);
        values.append(reinterpret_cast<const char*>(&value), sizeof value);
      }
    }
    const std::string path = copies_->TemporaryPath();
    EXPECT_TRUE(WriteFileAtomic(path, published::SafetensorsHeader(entries, {}) + values).ok());
    v1::CheckpointFile file;
    file.set_name("stage-0.params.safetensors");
    file.set_sha256(copies_->Adopt(path).value());
    request.files.push_back(file);
    return request;
  }
  std::vector<event::HookEnded> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ended_.size() >= count; }));
    return ended_;
  }
  size_t Exports() const {
    const std::filesystem::directory_iterator entries(folder_.path() + "/hooks");
    return static_cast<size_t>(std::distance(begin(entries), end(entries)));
  }

  const testing::TempDir folder_;
  std::unique_ptr<BlobStore> blobs_, copies_;
  RunSpec spec_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<event::HookEnded> ended_;
  std::unique_ptr<HookRunner> runner_;
};

TEST_F(HookRunnerTest, TheProgramGetsTheExport) {
  const command::RunHook request =
      Request("tiny-1", "cd $LONGHAUL_EXPORT && ls -A && echo $LONGHAUL_RUN $LONGHAUL_STEP && pwd");
  runner_->Add(request);
  // From now on the copy may go.
  ASSERT_TRUE(copies_->Remove(request.files[0].sha256()).ok());
  const event::HookEnded ended = WaitFor(1)[0];
  EXPECT_TRUE(ended.ok) << ended.how << ended.output;
  EXPECT_EQ(ended.run, RunId("tiny-1"));
  EXPECT_EQ(ended.step, 5);
  EXPECT_THAT(ended.output, ::testing::StartsWith("config.json\nmodel.safetensors\ntiny-1 5\n/"));
  runner_.reset();
  EXPECT_EQ(Exports(), 0);
}

TEST_F(HookRunnerTest, FailuresAreEvents) {
  command::RunHook lost = Request("tiny-1", "true");
  ASSERT_TRUE(copies_->Remove(lost.files[0].sha256()).ok());
  runner_->Add(lost);
  EXPECT_THAT(WaitFor(1)[0].how,
              ::testing::AllOf(HasSubstr("could not run"), HasSubstr("stage-0.params")));
  command::RunHook other = Request("tiny-1", "true");
  other.spec.model.hidden = 32;
  runner_->Add(other);
  EXPECT_THAT(WaitFor(2)[1].how, HasSubstr("expected"));
  runner_->Add(Request("tiny-1", "exit 3"));
  EXPECT_EQ(WaitFor(3)[2].how, "ended with exit code 3");
  for (const event::HookEnded& ended : ended_) EXPECT_FALSE(ended.ok);
  runner_.reset();
  EXPECT_EQ(Exports(), 0);
}

TEST_F(HookRunnerTest, RunsDoNotWaitForEachOther) {
  // The first ends when the second has begun.
  const std::string sign = folder_.path() + "/sign";
  runner_->Add(Request("tiny-1", "until [ -e " + sign + " ]; do sleep 0.01; done"));
  runner_->Add(Request("tiny-2", "touch " + sign));
  EXPECT_EQ(WaitFor(2).size(), 2);
}

TEST_F(HookRunnerTest, AnEndKillsThemAndLeavesNothing) {
  const std::string sign = folder_.path() + "/sign";
  runner_->Add(Request("tiny-1", "touch " + sign + "; sleep 1000"));
  runner_->Add(Request("tiny-1", "true"));
  while (!std::filesystem::exists(sign)) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_TRUE(runner_->Stop(Deadline::After(absl::Seconds(60))));
  runner_.reset();
  EXPECT_TRUE(ended_.empty());
  EXPECT_EQ(Exports(), 0);
  // What a process that was killed has left goes with the next hook.
  std::filesystem::create_directories(folder_.path() + "/hooks/old/export");
  Start();
  runner_->Add(Request("tiny-1", "true"));
  EXPECT_TRUE(WaitFor(1)[0].ok) << ended_[0].how;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/hooks/old"));
}

}  // namespace
}  // namespace longhaul::coordinator
