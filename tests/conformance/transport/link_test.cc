#include "tests/conformance/transport/link_test.h"

#include <utility>

#include "transport/p2p/core/transport_core.h"

namespace longhaul::transport {

INSTANTIATE_TEST_SUITE_P(Backend, LinkTest, ::testing::Values(UnderTest(), SealedUnderTest()),
                         [](const auto& i) { return i.param.name; });

void RecordingHandler::OnFrame(Lane lane, std::span<const std::byte> payload) {
  on_frame(lane, payload);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_, 0) << "a frame after OnClosed";
  ++counts_[static_cast<int>(lane)];
  changed_.notify_all();
  if (keep_payloads) {
    frames_.push_back(
        {lane, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())});
  }
}

void RecordingHandler::OnSuspect(absl::Duration silence) {
  EXPECT_GT(silence, absl::ZeroDuration());
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_, 0);
  ++suspects_;
  changed_.notify_all();
}

void RecordingHandler::OnHealthy() {
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_, 0);
  ++healthy_;
  changed_.notify_all();
  EXPECT_LE(healthy_, suspects_);
}

void RecordingHandler::OnLost(const Status& why) {
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_, 0);
  ++lost_;
  changed_.notify_all();
}

void RecordingHandler::OnHealed(absl::Duration away, uint64_t) {
  EXPECT_GE(away, absl::ZeroDuration());
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(closed_, 0);
  ++healed_;
  changed_.notify_all();
}

void RecordingHandler::OnClosed(const Status& reason) {
  if (on_closed) on_closed();
  const std::lock_guard lock(mutex_);
  ++closed_;
  EXPECT_EQ(closed_, 1) << "OnClosed came twice";
  EXPECT_FALSE(reason.ok());
  reason_ = reason;
  changed_.notify_all();
}

std::vector<RecordingHandler::Frame> RecordingHandler::frames() const {
  const std::lock_guard lock(mutex_);
  return frames_;
}

bool RecordingHandler::WaitFor(const std::function<bool()>& condition, absl::Duration limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), condition);
}

bool RecordingHandler::WaitForFrames(size_t count) const {
  return WaitFor([&] { return counts_[0] + counts_[1] >= count; }, 3 * kPatience);
}

bool RecordingHandler::WaitForFramesOn(Lane lane, size_t count) const {
  return WaitFor([&] { return counts_[static_cast<int>(lane)] >= count; });
}

size_t RecordingHandler::FramesOn(Lane lane) const {
  const std::lock_guard lock(mutex_);
  return counts_[static_cast<int>(lane)];
}

bool RecordingHandler::WaitForSuspect() const {
  return WaitFor([&] { return suspects_ > 0; });
}

bool RecordingHandler::WaitForHealthy() const {
  return WaitFor([&] { return healthy_ > 0; });
}

bool RecordingHandler::WaitForLost(int count) const {
  return WaitFor([&] { return lost_ >= count; });
}

bool RecordingHandler::WaitForHealed(int count) const {
  return WaitFor([&] { return healed_ >= count; });
}

bool RecordingHandler::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_ > 0;
}

Status RecordingHandler::WaitForClosed(absl::Duration limit) const {
  if (!WaitFor([&] { return closed_ > 0; }, limit)) {
    return absl::DeadlineExceededError("OnClosed did not come");
  }
  const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(state->mutex);
    if (status.ok()) {
      ++state->ok;
    } else {
      state->failures.push_back(status);
    }
    state->changed.notify_all();
  });
  return [bomb](const Status& status) { bomb->Run(status); };
}

bool SendLedger::WaitForAll(size_t count) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, absl::ToChronoNanoseconds(kPatience),
                                  [&] { return state_->ok + state_->failures.size() == count; });
}

size_t SendLedger::ok() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ok;
}

size_t SendLedger::failed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures.size();
}

std::vector<Status> SendLedger::failures() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failures;
}

Transport::OpenDone OpenResult::Done() {
  return [state = state_](StatusOr<std::shared_ptr<Link>> result) {
    const std::lock_guard lock(state->mutex);
    ++state->calls;
    EXPECT_EQ(state->calls, 1) << "an OpenDone that ran twice";
    state->result = std::move(result);
    state->changed.notify_all();
  };
}

StatusOr<std::shared_ptr<Link>> OpenResult::Wait(absl::Duration limit) const {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, absl::ToChronoNanoseconds(limit),
                           [&] { return state_->calls > 0; });
  return state_->result;
}

int OpenResult::calls() const {
  const std::lock_guard lock(state_->mutex);
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

void LinkTest::PutFaultsAroundDialler() {
  auto transport = internal::NewTransport(faults_.Around(GetParam().create_backend()));
  ASSERT_TRUE(transport.ok()) << transport.status();
  dialler_ = *std::move(transport);
}

LinkKey LinkTest::Key(uint32_t edge) {
  return {RunId("demo-ab12cd"), Stamp(3), EdgeId(edge)};
}

BackendUnderTest SealedUnderTest() {
  BackendUnderTest backend = UnderTest();
  backend.name += "_sealed";
  backend.sealed = true;
  return backend;
}

LinkOptions LinkTest::With(LinkOptions options) {
  options.sealed = GetParam().sealed;
  return options;
}

void LinkTest::Open(const LinkOptions& options, const LinkKey& key) {
  OpenResult expected;
  OpenResult dialled;
  listener_->Expect(key, kSecret, at_listener_, With(options), Deadline::After(kPatience),
                    expected.Done());
  dialler_->Dial({listener_->address()}, key, kSecret, at_dialler_, With(options),
                 Deadline::After(kPatience), dialled.Done());
  const auto there = dialled.Wait();
  const auto here = expected.Wait();
  ASSERT_TRUE(there.ok()) << there.status();
  ASSERT_TRUE(here.ok()) << here.status();
  dialler_link_ = *there;
  listener_link_ = *here;
}

std::string Shown(const std::string& address) {
  return address.substr(0, address.find('#'));
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
