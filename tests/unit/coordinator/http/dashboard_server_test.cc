// The server over real connections: who is answered, with what headers, and how streams end.
#include "coordinator/http/dashboard_server.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <httplib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/address.h"
#include "tests/fuzz/local_peer.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/http/fake_source.h"

namespace longhaul::coordinator {
namespace {

using ::testing::HasSubstr;

class DashboardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = DashboardServer::Start(
        {.listen = "127.0.0.1:0", .reports = folder_.path(), .version = "1.2.3"}, &source_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = ParseHostPort(server_->address())->port;
  }

  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) {
    httplib::Client client("127.0.0.1", port_);
    return client.Get(path, headers);
  }
  static nlohmann::json Parse(const httplib::Result& result) {
    return nlohmann::json::parse(result->body);
  }

  testing::TempDir folder_;
  FakeSource source_;
  std::unique_ptr<DashboardServer> server_;
  int port_ = 0;
};

TEST(DashboardAddressTest, OnlyThisMachineIsServed) {
  for (const char* address : {"127.0.0.1:8080", "[::1]:0", "localhost:1", "127.9.9.9:80"}) {
    EXPECT_TRUE(CheckDashboardAddress(address).ok()) << address;
  }
  for (const char* address : {"0.0.0.0:8080", "[::]:8080", "192.168.1.7:80", "example.org:80"}) {
    const Status status = CheckDashboardAddress(address);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("ssh -L"));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(CheckDashboardAddress("8080")));
}

TEST_F(DashboardTest, APortInUseIsRefused) {
  const auto second = DashboardServer::Start(
      {.listen = server_->address(), .reports = "", .version = ""}, &source_);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
}

TEST_F(DashboardTest, ThePageAsksNobodyElse) {
  const httplib::Result page = Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Type"), "text/html; charset=utf-8");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
  EXPECT_THAT(policy, ::testing::Not(HasSubstr("unsafe")));
  EXPECT_EQ(page->get_header_value("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(page->get_header_value("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(page->body.find("http://"), std::string::npos);
  EXPECT_EQ(page->body.find("https://"), std::string::npos);
  // All that the page names is there.
  size_t named = 0;
  for (const char* attribute : {"src=\"/", "href=\"/"}) {
    for (size_t at = page->body.find(attribute); at != std::string::npos;
         at = page->body.find(attribute, at + 1)) {
      const size_t begin = page->body.find('"', at) + 1;
      const std::string path = page->body.substr(begin, page->body.find('"', begin) - begin);
      EXPECT_EQ(Get(path)->status, 200) << path;
      ++named;
    }
  }
  EXPECT_GE(named, 4u);
}

// A stranger's page whose name has come to mean this machine asks under the stranger's name.
TEST_F(DashboardTest, OtherHostsAreRefused) {
  for (const std::string host : {"evil.example", "evil.example:8080", "192.168.1.7:8080", ""}) {
    EXPECT_EQ(Get("/api/overview", {{"Host", host}})->status, 421) << host;
  }
  for (const std::string host : {"127.0.0.1:8080", "localhost", "localhost:9999", "[::1]:80"}) {
    EXPECT_EQ(Get("/api/overview", {{"Host", host}})->status, 200) << host;
  }
}

TEST_F(DashboardTest, PagesOfOthersAreRefused) {
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_EQ(Get("/api/overview", {{"Sec-Fetch-Site", site}})->status, 403) << site;
    EXPECT_EQ(Get("/api/live", {{"Sec-Fetch-Site", site}})->status, 403) << site;
  }
  EXPECT_EQ(Get("/api/overview", {{"Sec-Fetch-Site", "same-origin"}})->status, 200);
  // A link from elsewhere leads here.
  EXPECT_EQ(Get("/", {{"Sec-Fetch-Site", "cross-site"}})->status, 200);
}

TEST_F(DashboardTest, TheLicenceOfWhatIsCarriedComesWithIt) {
  EXPECT_THAT(Get("/LICENSE")->body, HasSubstr("Leon Sorokin"));
}

TEST_F(DashboardTest, NothingCanBeChanged) {
  httplib::Client client("127.0.0.1", port_);
  EXPECT_EQ(client.Post("/api/run?run=tiny", "", "text/plain")->status, 405);
  EXPECT_EQ(client.Delete("/api/run?run=tiny")->status, 405);
  EXPECT_EQ(client.Options("/api/overview")->status, 405);
}

// httplib alone would read a line of any length into memory.
TEST_F(DashboardTest, ARequestWithoutAnEndIsCut) {
  for (const std::string begin :
       {"GET /", "GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n"}) {
    const UniqueFd connection = fuzz::ConnectLocally(static_cast<uint16_t>(port_));
    fuzz::SendAll(connection.get(), begin);
    const std::string piece(1 << 16, 'a');
    size_t taken = 0;
    while (taken < 64 << 20 &&
           ::send(connection.get(), piece.data(), piece.size(), MSG_NOSIGNAL) > 0) {
      taken += piece.size();
    }
    // What the kernel holds is more than what the server reads.
    EXPECT_LT(taken, 64u << 20) << begin;
  }
  EXPECT_EQ(Get("/api/overview")->status, 200);
}

TEST_F(DashboardTest, RefusalsAreJsonWithASentence) {
  EXPECT_EQ(Get("/api/run?run=other")->status, 404);
  EXPECT_EQ(Parse(Get("/api/run?run=other"))["error"], "there is no such run");
  EXPECT_EQ(Get("/api/steps?run=tiny&points=3")->status, 400);
  EXPECT_EQ(Get("/api/steps?run=tiny&points=99999")->status, 400);
  EXPECT_EQ(Get("/api/steps?run=tiny&first=-1")->status, 400);
  EXPECT_EQ(Get("/api/timeline?run=tiny")->status, 409);
  EXPECT_EQ(Get("/../../etc/passwd")->status, 404);
}

TEST_F(DashboardTest, ReportsAreThoseOfTheFolder) {
  std::filesystem::create_directories(folder_.path() + "/rates");
  std::filesystem::create_directories(folder_.path() + "/empty");
  std::ofstream(folder_.path() + "/rates/report.html") << "<h1>rates</h1>";
  std::ofstream(folder_.path() + "/report.html") << "above";
  EXPECT_EQ(Parse(Get("/api/reports"))["reports"].size(), 1u);
  EXPECT_EQ(Parse(Get("/api/reports"))["reports"][0]["name"], "rates");
  const httplib::Result report = Get("/report?name=rates");
  EXPECT_EQ(report->body, "<h1>rates</h1>");
  EXPECT_THAT(report->get_header_value("Content-Security-Policy"), HasSubstr("sandbox"));
  for (const char* name : {"empty", "..", ".", "rates/../rates", ""}) {
    EXPECT_EQ(Get(fmt::format("/report?name={}", name))->status, 404) << name;
  }
}

TEST_F(DashboardTest, ReportsAreFilesAlone) {
  const auto sweep = [&](const std::string& name) {
    std::filesystem::create_directories(folder_.path() + "/" + name);
    return folder_.path() + "/" + name + "/report.html";
  };
  std::ofstream(folder_.path() + "/secret") << "of somebody else";
  std::filesystem::create_symlink(folder_.path() + "/secret", sweep("link"));
  ASSERT_EQ(::mkfifo(sweep("pipe").c_str(), 0600), 0);
  std::filesystem::create_directories(sweep("folder"));
  std::ofstream(sweep("large")) << "<h1>";
  std::filesystem::resize_file(sweep("large"), (64 << 20) + 1);
  const auto listed = Parse(Get("/api/reports"))["reports"];
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["name"], "large");
  for (const char* name : {"link", "pipe", "folder"}) {
    EXPECT_EQ(Get(fmt::format("/report?name={}", name))->status, 404) << name;
  }
  EXPECT_THAT(std::string(Parse(Get("/report?name=large"))["error"]), HasSubstr("at most"));
}

// Reads a stream on a thread of its own, until it ends or `until` is in it.
class Viewer {
 public:
  Viewer(int port, std::string until)
      : until_(std::move(until)), thread_([this, port] {
          httplib::Client client("127.0.0.1", port);
          client.set_read_timeout(30);
          const auto result =
              client.Get("/api/live?run=tiny", [this](const char* data, size_t size) {
                text_.append(data, size);
                if (!began_.HasBeenNotified()) began_.Notify();
                return until_.empty() || text_.find(until_) == std::string::npos;
              });
          status_ = result ? result->status : 0;
        }) {}
  // Until the first news have come.
  bool Began() { return began_.WaitForNotificationWithTimeout(absl::Seconds(30)); }
  std::string Text() {
    if (thread_.joinable()) thread_.join();
    return text_;
  }
  ~Viewer() { Text(); }

 private:
  const std::string until_;
  std::string text_;
  int status_ = 0;
  absl::Notification began_;
  std::thread thread_;
};

TEST_F(DashboardTest, AStreamTellsNews) {
  source_.AddStep(3);
  Viewer viewer(port_, "\"step\":2,");
  // Whether before the stream begins or after it.
  source_.AddStep(2.5);
  server_->OnNews();
  const std::string text = viewer.Text();
  EXPECT_THAT(text, HasSubstr("event: overview\ndata: {"));
  EXPECT_THAT(text, HasSubstr("event: run\ndata: {"));
}

TEST_F(DashboardTest, AStreamWithoutNewsSaysThatItLives) {
  EXPECT_THAT(Viewer(port_, "event: alive").Text(), HasSubstr("event: alive\ndata: {}\n\n"));
}

TEST_F(DashboardTest, StreamsAreBoundedAndLeaveThreadsForOthers) {
  {
    std::atomic<size_t> following = 0, refused = 0;
    std::vector<std::thread> threads;
    std::atomic<bool> stop = false;
    for (size_t i = 0; i < DashboardServer::kStreams + 2; ++i) {
      threads.emplace_back([&] {
        httplib::Client client("127.0.0.1", port_);
        client.set_read_timeout(30);
        bool first = true;
        const auto result = client.Get(
            "/api/live",
            [&](const httplib::Response& response) {
              if (response.status != 200) ++refused;
              return response.status == 200;
            },
            [&](const char*, size_t) {
              if (first) ++following;
              first = false;
              return !stop;
            });
      });
    }
    const Deadline deadline = Deadline::After(absl::Seconds(30));
    while ((following < DashboardServer::kStreams || refused < 2) && !deadline.Expired()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(following, DashboardServer::kStreams);
    EXPECT_EQ(refused, 2u);
    EXPECT_EQ(Get("/api/overview")->status, 200);
    stop = true;
    server_->OnNews();
    for (std::thread& thread : threads) thread.join();
  }
  // The places of those who went are free again.
  const Deadline deadline = Deadline::After(absl::Seconds(30));
  std::string text;
  while (text.find("overview") == std::string::npos && !deadline.Expired()) {
    text = Viewer(port_, "overview").Text();
  }
  EXPECT_THAT(text, HasSubstr("overview"));
}

TEST_F(DashboardTest, AnEndDoesNotWaitForViewers) {
  std::vector<std::unique_ptr<Viewer>> viewers;
  for (int i = 0; i < 4; ++i) viewers.push_back(std::make_unique<Viewer>(port_, ""));
  for (auto& viewer : viewers) EXPECT_TRUE(viewer->Began());
  const MonoTime begin = Now();
  EXPECT_TRUE(server_->Stop(Deadline::After(absl::Seconds(30))));
  EXPECT_LT(Now() - begin, absl::Seconds(15));
  for (auto& viewer : viewers) viewer->Text();
}

}  // namespace
}  // namespace longhaul::coordinator
