// What every backend of transport/p2p must do. A backend joins with one file that defines
// UnderTest() (see loopback_test.cc) and one lh_test.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/notification.h"
#include "tests/support/link_faults.h"
#include "transport/p2p/core/connection.h"
#include "transport/p2p/link.h"

namespace longhaul::transport {

struct BackendUnderTest {
  std::string name;
  // A new transport at an address of its own.
  std::function<StatusOr<std::unique_ptr<Transport>>()> create;
  // The bare seam, for tests that speak the wire themselves.
  std::function<std::unique_ptr<internal::Backend>()> create_backend;
  // An address where nobody listens.
  std::string nobody;
  bool sealed = false;     // LinkOptions'
  bool is_stream = false;  // it has no messages of its own, and cuts frames by their headers
  friend std::ostream& operator<<(std::ostream& out, const BackendUnderTest& backend) {
    return out << backend.name;
  }
};

// By the backend's file.
BackendUnderTest UnderTest();
// The same, with links that are sealed.
BackendUnderTest SealedUnderTest();

inline constexpr absl::Duration kPatience = absl::Seconds(20);

// Remembers what it hears; waits for it with a limit.
class RecordingHandler : public LinkHandler {
 public:
  struct Frame {
    Lane lane;
    std::string payload;
  };

  void OnFrame(Lane lane, std::span<const std::byte> payload) override;
  void OnSuspect(absl::Duration silence) override;
  void OnHealthy() override;
  void OnLost(const Status& why) override;
  void OnHealed(absl::Duration away, uint64_t frames_resent) override;
  void OnClosed(const Status& reason) override;

  // Runs at the start of OnFrame. One thread sets it while the link's thread calls it.
  class FrameCallback {
   public:
    using Function = std::function<void(Lane, std::span<const std::byte>)>;
    void operator=(Function function) {
      const std::lock_guard lock(mutex_);
      function_ = std::make_shared<Function>(std::move(function));
    }
    void operator()(Lane lane, std::span<const std::byte> payload) const {
      const std::shared_ptr<Function> function = Get();
      if (function != nullptr && *function) (*function)(lane, payload);
    }

   private:
    std::shared_ptr<Function> Get() const {
      const std::lock_guard lock(mutex_);
      return function_;
    }
    mutable std::mutex mutex_;
    std::shared_ptr<Function> function_;
  };
  FrameCallback on_frame;
  std::function<void()> on_closed;
  bool keep_payloads = true;  // set before the link opens

  std::vector<Frame> frames() const;
  bool WaitForFrames(size_t count) const;
  // Frames of one lane.
  bool WaitForFramesOn(Lane lane, size_t count) const;
  size_t FramesOn(Lane lane) const;
  bool WaitForSuspect() const;
  bool WaitForHealthy() const;
  bool WaitForLost(int count = 1) const;
  bool WaitForHealed(int count = 1) const;
  bool closed() const;
  // OnClosed's reason; kDeadlineExceeded if it does not come.
  Status WaitForClosed(absl::Duration limit = kPatience) const;

 private:
  bool WaitFor(const std::function<bool()>& condition, absl::Duration limit = kPatience) const;

  mutable std::mutex mutex_;  // all below
  mutable std::condition_variable changed_;
  std::vector<Frame> frames_;
  size_t counts_[2] = {0, 0};
  int suspects_ = 0;
  int healthy_ = 0;
  int lost_ = 0;
  int healed_ = 0;
  int closed_ = 0;
  Status reason_;
};

// Counts `done`s: each exactly once.
class SendLedger {
 public:
  // A `done` for one more send; aborts the test if it runs twice, fails it if it is dropped
  // uncalled.
  Link::SendDone Expect();
  bool WaitForAll(size_t count) const;
  size_t ok() const;
  size_t failed() const;
  std::vector<Status> failures() const;

 private:
  struct State {
    mutable std::mutex mutex;  // both below
    std::condition_variable changed;
    size_t ok = 0;
    std::vector<Status> failures;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// A promise for an OpenDone.
class OpenResult {
 public:
  Transport::OpenDone Done();
  StatusOr<std::shared_ptr<Link>> Wait(absl::Duration limit = kPatience) const;
  int calls() const;

 private:
  struct State {
    std::mutex mutex;  // both below
    std::condition_variable changed;
    int calls = 0;
    StatusOr<std::shared_ptr<Link>> result =
        absl::DeadlineExceededError("no answer of Expect or Dial");
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class LinkTest : public ::testing::TestWithParam<BackendUnderTest> {
 protected:
  void SetUp() override;
  std::unique_ptr<Transport> NewTransport();
  static LinkKey Key(uint32_t edge = 0);
  // Sealed where the row says so.
  static LinkOptions With(LinkOptions options);
  // Opens a link dialler_ -> listener_ with the handlers below; fails the test if it does not open.
  void Open(const LinkOptions& options = {}, const LinkKey& key = Key());
  // The dialler's network can be made to fail; before Open.
  void PutFaultsAroundDialler();

  static constexpr char kSecret[] = "the secret of this run";

  // Declared so that links go before transports.
  std::unique_ptr<Transport> listener_;
  std::unique_ptr<Transport> dialler_;
  std::shared_ptr<RecordingHandler> at_listener_ = std::make_shared<RecordingHandler>();
  std::shared_ptr<RecordingHandler> at_dialler_ = std::make_shared<RecordingHandler>();
  std::shared_ptr<Link> listener_link_;
  std::shared_ptr<Link> dialler_link_;
  Faults faults_;
};

// An address as descriptions and errors have it.
std::string Shown(const std::string& address);
FrameView BodyOf(const std::string& text);
FrameView FrameOf(const std::string& header, const std::string& body);
// Bytes that depend on every position, so that mixed-up frames show.
std::string Pattern(uint64_t seed, size_t size);

}  // namespace longhaul::transport
