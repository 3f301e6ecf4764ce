// What strangers may do to the port of the grpc transport, with plain sockets, while a link works.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <random>
#include <thread>

#include "proto/rpc/listener.h"
#include "tests/conformance/transport/link_test.h"
#include "transport/p2p/grpc/factory.h"

namespace longhaul::transport {
namespace {

using ::testing::HasSubstr;

constexpr size_t kMostGrowth = size_t{64} << 20;

// HTTP/2's greeting with empty SETTINGS: what makes gRPC believe in a peer.
constexpr std::string_view kGreeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);

// Nothing where AddressSanitizer keeps what was freed.
size_t ResidentBytes() {
#ifdef __SANITIZE_ADDRESS__
  return 0;
#endif
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class Stranger {
 public:
  explicit Stranger(const std::string& address) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    const size_t colon = address.rfind(':');
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  Stranger(Stranger&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  ~Stranger() {
    if (fd_ >= 0) close(fd_);
  }
  bool connected() const { return connected_; }
  // False once the other side has hung up.
  bool Say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) {
        pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
        if (poll(&ready, 1, 1000) <= 0) return false;  // it does not listen to us any more
        continue;
      }
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Data for stream 1 as fast as HTTP/2's flow control lets it, at most `limit`; how much was
  // taken.
  size_t SendWithinWindows(size_t limit);
  // Reads what comes until the other side hangs up.
  bool WaitForHangUp(absl::Duration limit) {
    const Deadline deadline = Deadline::After(limit);
    while (!deadline.Expired()) {
      pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return true;
    }
    return false;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

// A frame of HTTP/2.
std::string Http2Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string frame;
  for (const uint32_t byte : {size >> 16, size >> 8, size, uint32_t{type}, uint32_t{flags},
                              stream >> 24, stream >> 16, stream >> 8, stream}) {
    frame.push_back(static_cast<char>(byte));
  }
  return frame.append(payload);
}

size_t Stranger::SendWithinWindows(size_t limit) {
  constexpr size_t kPiece = 16'384;
  const std::string piece = Http2Frame(0, 0, 1, std::string(kPiece, 'x'));
  size_t windows[2] = {65'000, 65'000};  // of the connection and of the stream
  size_t sent = 0;
  std::string heard;
  const Deadline deadline = Deadline::After(kPatience);
  while (sent < limit && !deadline.Expired()) {
    while (std::min(windows[0], windows[1]) >= kPiece) {
      if (!Say(piece)) return sent;
      for (size_t& window : windows) window -= kPiece;
      sent += kPiece;
    }
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    poll(&ready, 1, 100);
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) return sent;
    if (n > 0) heard.append(buffer, static_cast<size_t>(n));
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(heard[at]); };
    for (size_t size; heard.size() >= 9; heard.erase(0, 9 + size)) {
      size = size_t{byte(0)} << 16 | size_t{byte(1)} << 8 | byte(2);
      if (heard.size() < 9 + size) break;
      if (byte(3) != 8 || size != 4) continue;  // no WINDOW_UPDATE
      windows[byte(8) != 0 ? 1 : 0] +=
          size_t{byte(9)} << 24 | size_t{byte(10)} << 16 | size_t{byte(11)} << 8 | byte(12);
    }
  }
  return sent;
}

// A header as HPACK writes it out in full.
std::string Literal(std::string_view name, std::string_view value) {
  std::string out("\0", 1);
  out.push_back(static_cast<char>(name.size()));
  out.append(name);
  out.push_back(static_cast<char>(value.size()));
  return out.append(value);
}

// Opens the stream that links use.
std::string OpenStream() {
  return Http2Frame(1, 4, 1,
                    Literal(":method", "POST") + Literal(":scheme", "http") +
                        Literal(":path", "/longhaul.v1.DataLink/Stream") +
                        Literal(":authority", "x") + Literal("te", "trailers") +
                        Literal("content-type", "application/grpc"));
}

class HostilePortTest : public LinkTest {
 protected:
  void SetUp() override {
    LinkTest::SetUp();
    // This process has both ends of a thousand connections, and the listener's second descriptors.
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
    setrlimit(RLIMIT_NOFILE, &limit);
    at_listener_->keep_payloads = false;
    Open();
    Exchange(100);
    resident_ = ResidentBytes();
  }
  // The link works and memory has not grown.
  void TearDown() override {
    Exchange(100);
    EXPECT_FALSE(at_listener_->closed());
    EXPECT_LT(ResidentBytes(), resident_ + kMostGrowth);
    // Another one opens too.
    at_dialler_ = std::make_shared<RecordingHandler>();
    at_listener_ = std::make_shared<RecordingHandler>();
    Open({}, Key(1));
  }
  void Exchange(size_t frames) {
    SendLedger sends;
    static const std::string body = Pattern(1, 10'000);  // what is not sent yet outlives a failure
    for (size_t i = 0; i < frames; ++i) {
      dialler_link_->Send(Lane::kBulk, BodyOf(body), sends.Expect());
    }
    sent_ += frames;
    ASSERT_TRUE(at_listener_->WaitForFrames(sent_));
    ASSERT_TRUE(sends.WaitForAll(frames));
  }
  Stranger Connect() { return Stranger(listener_->address()); }

  size_t sent_ = 0;
  size_t resident_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Backend, HostilePortTest, ::testing::Values(UnderTest()),
                         [](const auto& i) { return i.param.name; });

TEST_P(HostilePortTest, RandomBytes) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Stranger plain = Connect();
    ASSERT_TRUE(plain.connected());
    plain.Say(Pattern(seed, 1 + random() % 50'000));
    Stranger greeted = Connect();
    greeted.Say(kGreeting);
    greeted.Say(Pattern(seed, 1 + random() % 50'000));
    Stranger in_stream = Connect();
    in_stream.Say(kGreeting);
    in_stream.Say(OpenStream());
    in_stream.Say(Http2Frame(0, 0, 1, Pattern(seed, 1 + random() % 10'000)));
  }
}

// A message whose length is 4 GB, and one that says it is compressed.
TEST_P(HostilePortTest, LyingMessageLengths) {
  std::vector<Stranger> strangers;  // all at once: each is cut when its time is over
  for (const std::string_view prefix :
       {std::string_view("\0\377\377\377\377", 5), std::string_view("\1\0\0\0\20", 5)}) {
    Stranger& stranger = strangers.emplace_back(Connect());
    ASSERT_TRUE(stranger.Say(kGreeting));
    ASSERT_TRUE(stranger.Say(OpenStream()));
    stranger.Say(Http2Frame(0, 0, 1, std::string(prefix) + std::string(16, 'x')));
    stranger.Say(Http2Frame(0, 0, 1, std::string(10'000, 'x')));
  }
  for (Stranger& stranger : strangers) EXPECT_TRUE(stranger.WaitForHangUp(kPatience));
}

// gRPC would take as much as the message says it has, one window after the other.
TEST_P(HostilePortTest, AMessageWithoutEnd) {
  for (int i = 0; i < 10; ++i) {
    Stranger stranger = Connect();
    ASSERT_TRUE(stranger.Say(kGreeting));
    ASSERT_TRUE(stranger.Say(OpenStream()));
    ASSERT_TRUE(stranger.Say(Http2Frame(0, 0, 1, std::string_view("\0\100\0\0\0", 5))));
    // A hundred kB, mostly; more where the listener's thread waits for a core meanwhile.
    EXPECT_LT(stranger.SendWithinWindows(size_t{512} << 20), size_t{64} << 20);
  }
}

TEST_P(HostilePortTest, AThousandIdleConnections) {
  std::vector<Stranger> strangers;
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(Connect());
    ASSERT_TRUE(strangers.back().connected());
    if (i % 3 > 0) strangers.back().Say(kGreeting);
    if (i % 3 > 1) strangers.back().Say(OpenStream());
  }
  // The oldest had to go for the newest.
  for (size_t i = 0; i < strangers.size() - kMaxStrangers; ++i) {
    ASSERT_TRUE(strangers[i].WaitForHangUp(kPatience)) << i;
  }
  Exchange(100);
  EXPECT_LT(ResidentBytes(), resident_ + kMostGrowth);
  // While they are all there, who knows the secret gets in.
  at_dialler_ = std::make_shared<RecordingHandler>();
  const auto first = std::exchange(at_listener_, std::make_shared<RecordingHandler>());
  const auto links = std::pair(dialler_link_, listener_link_);
  Open({}, Key(2));
  at_listener_ = first;
  std::tie(dialler_link_, listener_link_) = links;
  // And none of them stays.
  EXPECT_TRUE(strangers.back().WaitForHangUp(kPatience));
}

// A byte now and then keeps nobody in.
TEST_P(HostilePortTest, SlowLoris) {
  Stranger silent = Connect();
  Stranger trickling = Connect();
  Stranger talking = Connect();
  ASSERT_TRUE(talking.Say(kGreeting));
  ASSERT_TRUE(talking.Say(OpenStream()));
  const MonoTime started = Now();
  const std::string trickle = std::string(kGreeting) + OpenStream();
  size_t said = 0;
  bool trickling_in = true, talking_in = true;
  while ((trickling_in || talking_in) && Now() - started < kPatience) {
    trickling_in = trickling_in && trickling.Say(trickle.substr(said++ % trickle.size(), 1));
    talking_in = talking_in && talking.Say(Http2Frame(6, 0, 0, "8 bytes."));  // a ping
    silent.WaitForHangUp(absl::Milliseconds(100));
  }
  EXPECT_FALSE(trickling_in);
  EXPECT_FALSE(talking_in);
  EXPECT_TRUE(silent.WaitForHangUp(kPatience));
}

// They come again and again for as long as the link is busy.
TEST_P(HostilePortTest, FloodOfConnections) {
  std::atomic<bool> stop{false};
  std::atomic<int> connections{0};
  std::thread flood([&] {
    while (!stop) {
      Stranger stranger = Connect();
      stranger.Say(kGreeting);
      stranger.Say(OpenStream());
      ++connections;
    }
  });
  Exchange(1000);
  while (connections < 2000) std::this_thread::yield();
  stop = true;
  flood.join();
}

TEST_P(HostilePortTest, WrongSecretAgainAndAgain) {
  OpenResult expected;
  listener_->Expect(Key(3), kSecret, at_listener_, {}, Deadline::After(kPatience), expected.Done());
  for (int i = 0; i < 50; ++i) {
    OpenResult dialled;
    dialler_->Dial({listener_->address()}, Key(3), "a guess", at_dialler_, {},
                   Deadline::After(kPatience), dialled.Done());
    EXPECT_EQ(dialled.Wait().status().code(), absl::StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(expected.calls(), 0);
  listener_->Cancel(Key(3));
}

// What people get wrong about addresses.
std::string WordsOf(const std::string& bind_address) {
  const Status status = grpc::CreateTransport({.bind_address = bind_address}).status();
  EXPECT_FALSE(status.ok()) << bind_address;
  return std::string(Message(status));
}

TEST(GrpcAddressTest, EachMistakeHasItsSentence) {
  for (const std::string bad : {"", "here", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000"}) {
    EXPECT_THAT(WordsOf(bad), HasSubstr("expected host:port")) << bad;
  }
  EXPECT_THAT(WordsOf("203.0.113.7:0"), HasSubstr("not an address of this host"));
  const auto first = grpc::CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(WordsOf((*first)->address()), HasSubstr("the port is in use"));
}

TEST(GrpcAddressTest, TheSamePortAgainAtOnce) {
  auto transport = grpc::CreateTransport({.bind_address = "127.0.0.1:0"});
  ASSERT_TRUE(transport.ok()) << transport.status();
  const std::string address = (*transport)->address();
  for (int i = 0; i < 3; ++i) {
    transport->reset();
    transport = grpc::CreateTransport({.bind_address = address});
    ASSERT_TRUE(transport.ok()) << transport.status();
    EXPECT_EQ((*transport)->address(), address);
  }
}

TEST(GrpcAddressTest, PeersAsPeopleWriteThem) {
  EXPECT_EQ(PeerText("ipv4:127.0.0.1:4711"), "127.0.0.1:4711");
  EXPECT_EQ(PeerText("ipv6:%5Bfd00::1%5D:4711"), "[fd00::1]:4711");
  EXPECT_EQ(PeerText("ipv6:%5Bfe80::1%25252%5D:4711"), "[fe80::1]:4711");
}

}  // namespace
}  // namespace longhaul::transport
