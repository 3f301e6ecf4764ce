#include "tests/conformance/transport/link_test.h"

#include <utility>

namespace longhaul::transport {

INSTANTIATE_TEST_SUITE_P(Backend, LinkTest, testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

void RecordingHandler::OnFrame(Lane lane, std::span<const std::byte> payload) {
  if (on_frame) on_frame(lane, payload);
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(closed_, 0) << "a frame after OnClosed";
  ++counts_[static_cast<int>(lane)];
  if (keep_payloads) {
    frames_.push_back(
        {lane, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())});
  }
}

void RecordingHandler::OnSuspect(absl::Duration silence) {
  EXPECT_GT(silence, absl::ZeroDuration());
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(closed_, 0);
  ++suspects_;
}

void RecordingHandler::OnHealthy() {
  absl::MutexLock lock(&mutex_);
  EXPECT_EQ(closed_, 0);
  ++healthy_;
  EXPECT_EQ(healthy_, suspects_);
}

void RecordingHandler::OnClosed(const Status& reason) {
  if (on_closed) on_closed();
  absl::MutexLock lock(&mutex_);
  ++closed_;
  EXPECT_EQ(closed_, 1) << "OnClosed came twice";
  EXPECT_FALSE(reason.ok());
  reason_ = reason;
}

std::vector<RecordingHandler::Frame> RecordingHandler::frames() const {
  absl::MutexLock lock(&mutex_);
  return frames_;
}

bool RecordingHandler::WaitForFrames(size_t count) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&] {
    mutex_.AssertHeld();
    return counts_[0] + counts_[1] >= count;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), 3 * kPatience);
}

bool RecordingHandler::WaitForFramesOn(Lane lane, size_t count) const {
  absl::MutexLock lock(&mutex_);
  const auto enough = [&] {
    mutex_.AssertHeld();
    return counts_[static_cast<int>(lane)] >= count;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&enough), kPatience);
}

size_t RecordingHandler::FramesOn(Lane lane) const {
  absl::MutexLock lock(&mutex_);
  return counts_[static_cast<int>(lane)];
}

bool RecordingHandler::WaitForSuspect() const {
  absl::MutexLock lock(&mutex_);
  const auto seen = [&] {
    mutex_.AssertHeld();
    return suspects_ > 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&seen), kPatience);
}

bool RecordingHandler::WaitForHealthy() const {
  absl::MutexLock lock(&mutex_);
  const auto seen = [&] {
    mutex_.AssertHeld();
    return healthy_ > 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&seen), kPatience);
}

bool RecordingHandler::closed() const {
  absl::MutexLock lock(&mutex_);
  return closed_ > 0;
}

Status RecordingHandler::WaitForClosed(absl::Duration limit) const {
  absl::MutexLock lock(&mutex_);
  const auto closed = [&] {
    mutex_.AssertHeld();
    return closed_ > 0;
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&closed), limit)) {
    return absl::DeadlineExceededError("OnClosed did not come");
  }
  return reason_;
}

namespace {

// Fails the test when the last copy goes without Run().
class Bomb {
 public:
  explicit Bomb(std::function<void(const Status&)> run) : run_(std::move(run)) {}
  Bomb(const Bomb&) = delete;
  Bomb& operator=(const Bomb&) = delete;
  ~Bomb() { EXPECT_EQ(runs_, 1) << "a done that did not run exactly once"; }
  void Run(const Status& status) {
    ++runs_;
    EXPECT_EQ(runs_, 1) << "a done that ran twice";
    run_(status);
  }

 private:
  const std::function<void(const Status&)> run_;
  int runs_ = 0;
};

}  // namespace

Link::SendDone SendLedger::Expect() {
  auto bomb = std::make_shared<Bomb>([state = state_](const Status& status) {
    absl::MutexLock lock(&state->mutex);
    if (status.ok()) {
      ++state->ok;
    } else {
      state->failures.push_back(status);
    }
  });
  return [bomb](const Status& status) { bomb->Run(status); };
}

bool SendLedger::WaitForAll(size_t count) const {
  absl::MutexLock lock(&state_->mutex);
  const auto all = [&] {
    state_->mutex.AssertHeld();
    return state_->ok + state_->failures.size() == count;
  };
  return state_->mutex.AwaitWithTimeout(absl::Condition(&all), kPatience);
}

size_t SendLedger::ok() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->ok;
}

size_t SendLedger::failed() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->failures.size();
}

std::vector<Status> SendLedger::failures() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->failures;
}

Transport::OpenDone OpenResult::Done() {
  return [state = state_](StatusOr<std::shared_ptr<Link>> result) {
    absl::MutexLock lock(&state->mutex);
    ++state->calls;
    EXPECT_EQ(state->calls, 1) << "an OpenDone that ran twice";
    state->result = std::move(result);
  };
}

StatusOr<std::shared_ptr<Link>> OpenResult::Wait(absl::Duration limit) const {
  absl::MutexLock lock(&state_->mutex);
  const auto called = [&] {
    state_->mutex.AssertHeld();
    return state_->calls > 0;
  };
  state_->mutex.AwaitWithTimeout(absl::Condition(&called), limit);
  return state_->result;
}

int OpenResult::calls() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->calls;
}

void LinkTest::SetUp() {
  listener_ = NewTransport();
  dialler_ = NewTransport();
  ASSERT_TRUE(listener_ && dialler_);
}

std::unique_ptr<Transport> LinkTest::NewTransport() {
  auto transport = GetParam().create();
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

LinkKey LinkTest::Key(uint32_t boundary) {
  return {RunId("demo-ab12cd"), Epoch(3), Boundary(boundary)};
}

void LinkTest::Open(const LinkOptions& options, const LinkKey& key) {
  OpenResult expected;
  OpenResult dialled;
  listener_->Expect(key, kSecret, at_listener_, options, Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({listener_->address()}, key, kSecret, at_dialler_, options,
                 Deadline::After(kPatience), dialled.Done());
  const auto there = dialled.Wait();
  const auto here = expected.Wait();
  ASSERT_TRUE(there.ok()) << there.status();
  ASSERT_TRUE(here.ok()) << here.status();
  dialler_link_ = *there;
  listener_link_ = *here;
}

FrameView BodyOf(const std::string& text) {
  return {.header = {}, .body = std::as_bytes(std::span(text))};
}

FrameView FrameOf(const std::string& header, const std::string& body) {
  return {.header = std::as_bytes(std::span(header)), .body = std::as_bytes(std::span(body))};
}

std::string Pattern(uint64_t seed, size_t size) {
  std::string text(size, '\0');
  uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
  for (char& c : text) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    c = static_cast<char>(x);
  }
  return text;
}

}  // namespace longhaul::transport
