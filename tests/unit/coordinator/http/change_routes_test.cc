// Changes over real connections: who may ask for one, in what form; and the dashboard with TLS.
#include "coordinator/http/change_routes.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/address.h"
#include "coordinator/http/dashboard_server.h"
#include "coordinator/http/joining.h"
#include "tests/support/self_signed.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/coordinator/http/fake_changes.h"
#include "tests/unit/coordinator/http/fake_source.h"

namespace longhaul::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

httplib::Headers With(const std::string& key) {
  return {{"Authorization", "Bearer " + key}};
}

class ChangeRoutesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = DashboardServer::Start(
        {.listen = "127.0.0.1:0", .reports = "", .version = "1.2.3"}, &source_, &changes_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    port_ = ParseHostPort(server_->address())->port;
  }
  httplib::Result Post(const std::string& path, const std::string& body,
                       const httplib::Headers& headers,
                       const char* type = "application/json") const {
    httplib::Client client("127.0.0.1", port_);
    return client.Post(path, headers, body, type);
  }
  httplib::Result Get(const std::string& path, const httplib::Headers& headers = {}) const {
    httplib::Client client("127.0.0.1", port_);
    return client.Get(path, headers);
  }

  FakeSource source_;
  FakeChanges changes_;
  std::unique_ptr<DashboardServer> server_;
  int port_ = 0;
};

TEST_F(ChangeRoutesTest, AChangeNeedsAKey) {
  const std::string body = R"({"run": "tiny"})";
  EXPECT_EQ(Post("/api/stop", body, {})->status, 401);
  EXPECT_EQ(Post("/api/stop", body, With("other"))->status, 401);
  EXPECT_EQ(Post("/api/stop", body, {{"Authorization", "admin"}})->status, 401);
  EXPECT_EQ(Post("/api/stop", body, {{"Cookie", "key=admin"}})->status, 401);
  EXPECT_EQ(Post("/api/submit", R"({"yaml": "name: a"})", With("other"))->status, 401);
  EXPECT_EQ(Get("/api/submission?run=tiny")->status, 401);
  EXPECT_EQ(Get("/api/me")->status, 401);
  EXPECT_TRUE(changes_.asked().empty());
  // Reading needs none on this machine.
  EXPECT_EQ(Get("/api/overview")->status, 200);
}

TEST_F(ChangeRoutesTest, WhatIsAskedForIsDone) {
  const auto me = nlohmann::json::parse(Get("/api/me", With("user"))->body);
  EXPECT_EQ(me["name"], "ulla");
  EXPECT_EQ(me["role"], "user");
  const auto file = nlohmann::json::parse(Get("/api/submission?run=tiny", With("user"))->body);
  EXPECT_EQ(file["yaml"], "name: tiny\n");
  EXPECT_EQ(file["files"][0]["name"], "text.txt");
  EXPECT_EQ(Get("/api/submission?run=other", With("user"))->status, 404);

  const auto stopped = Post("/api/stop", R"({"run": "tiny", "now": true})", With("user"));
  EXPECT_EQ(stopped->status, 200);
  EXPECT_EQ(nlohmann::json::parse(stopped->body)["message"], "stops after its current step");
  EXPECT_EQ(Post("/api/stop", R"({"run": "tiny"})", With("user"))->status, 200);
  const auto submitted =
      Post("/api/submit", R"({"run": "tiny", "yaml": "name: b", "resume": true})", With("admin"));
  EXPECT_EQ(nlohmann::json::parse(submitted->body)["run_id"], "tiny-new");
  EXPECT_EQ(nlohmann::json::parse(submitted->body)["notes"], "waiting for 2 more workers");
  EXPECT_EQ(Post("/api/submit", R"({"yaml": "name: c"})", With("admin"))->status, 200);
  EXPECT_THAT(changes_.asked(), ElementsAre("stop now tiny", "stop tiny",
                                            "submit tiny again: name: b", "submit : name: c"));
}

// A form of another site can send text, and no JSON nor a key, without asking first.
TEST_F(ChangeRoutesTest, PagesOfOthersChangeNothing) {
  const std::string body = R"({"run": "tiny"})";
  httplib::Headers from_elsewhere = With("admin");
  from_elsewhere.emplace("Sec-Fetch-Site", "cross-site");
  EXPECT_EQ(Post("/api/stop", body, from_elsewhere)->status, 403);
  httplib::Headers other_name = With("admin");
  other_name.emplace("Host", "evil.example");
  EXPECT_EQ(Post("/api/stop", body, other_name)->status, 421);
  for (const char* type :
       {"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"}) {
    EXPECT_EQ(Post("/api/stop", body, With("admin"), type)->status, 400) << type;
  }
  httplib::Client client("127.0.0.1", port_);
  EXPECT_EQ(client.Options("/api/stop")->status, 405);
  EXPECT_EQ(client.Options("/api/stop")->get_header_value("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(client.Get("/api/stop", With("admin"))->status, 404);
  EXPECT_EQ(client.Put("/api/stop", With("admin"), body, "application/json")->status, 405);
  EXPECT_TRUE(changes_.asked().empty());
}

TEST_F(ChangeRoutesTest, OtherFormsAreRefused) {
  for (const char* body : {"", "[]", "\"tiny\"", "{", R"({"run": 3})", R"({"run": ["tiny"]})",
                           R"({"run": "tiny", "now": "yes"})", "nul", "\xff\xfe"}) {
    EXPECT_EQ(Post("/api/stop", body, With("admin"))->status, 400) << body;
  }
  const std::string deep(20'000, '[');
  EXPECT_EQ(Post("/api/stop", deep, With("admin"))->status, 400);
  const std::string large = R"({"yaml": ")" + std::string(kMostChangeBytes, 'a') + "\"}";
  const auto refused = Post("/api/submit", large, With("admin"));
  EXPECT_TRUE(!refused || refused->status == 413) << refused->status;
  EXPECT_TRUE(changes_.asked().empty());
  EXPECT_EQ(Get("/api/overview")->status, 200);
}

TEST(NoChangesTest, WithoutThemNothingIsServed) {
  FakeSource source;
  const auto server =
      DashboardServer::Start({.listen = "127.0.0.1:0", .reports = "", .version = ""}, &source);
  ASSERT_TRUE(server.ok());
  httplib::Client client("127.0.0.1", ParseHostPort((*server)->address())->port);
  EXPECT_EQ(client.Get("/api/me", With("admin"))->status, 401);
  EXPECT_EQ(client.Post("/api/stop", With("admin"), "{}", "application/json")->status, 401);
}

class TlsDashboardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    longhaul::testing::WriteSelfSigned(certificate_, key_);
    std::filesystem::create_directories(folder_.path() + "/rates");
    std::ofstream(folder_.path() + "/rates/report.html") << "<h1>rates</h1>";
    auto server = DashboardServer::Start({.listen = "0.0.0.0:0",
                                          .reports = folder_.path(),
                                          .version = "1",
                                          .certificate_file = certificate_,
                                          .key_file = key_},
                                         &source_, &changes_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    EXPECT_TRUE(server_->encrypted());
  }
  std::unique_ptr<httplib::SSLClient> Client() const {
    auto client =
        std::make_unique<httplib::SSLClient>("127.0.0.1", ParseHostPort(server_->address())->port);
    client->enable_server_certificate_verification(false);
    client->set_read_timeout(20);
    return client;
  }
  int Status(const std::string& path, const httplib::Headers& headers = {}) const {
    const auto result = Client()->Get(path, headers);
    return result ? result->status : 0;
  }
  longhaul::testing::TempDir folder_;
  const std::string certificate_ = folder_.path() + "/certificate.pem";
  const std::string key_ = folder_.path() + "/key.pem";
  FakeSource source_;
  FakeChanges changes_;
  std::unique_ptr<DashboardServer> server_;
};

TEST_F(TlsDashboardTest, EverybodyNeedsAKey) {
  EXPECT_EQ(Status("/"), 200);  // the page itself, which asks for the key
  for (const char* path :
       {"/api/overview", "/api/run?run=tiny", "/api/steps?run=tiny", "/api/workers", "/api/live",
        "/api/events", "/api/reports", "/api/joining", "/report?name=rates", "/api/me"}) {
    EXPECT_EQ(Status(path), 401) << path;
    if (std::string(path).starts_with("/api/")) {
      EXPECT_EQ(Status(path, With("other")), 401) << path;
    }
  }
  EXPECT_EQ(Status("/api/overview", With("admin")), 200);
  EXPECT_EQ(Status("/api/overview", {{"Host", "gpu.example"}, {"Authorization", "Bearer admin"}}),
            200);
  const auto reports = nlohmann::json::parse(Client()->Get("/api/reports", With("admin"))->body);
  const std::string ticket = reports["reports"][0]["ticket"];
  EXPECT_EQ(Status("/report?name=rates&ticket=" + ticket), 200);
  EXPECT_EQ(Status("/report?name=rates&ticket=" + std::string(ticket.rbegin(), ticket.rend())),
            401);
}

TEST_F(TlsDashboardTest, UsersSeeTheirOwnRuns) {
  source_.SetOwner("ada");
  const auto runs_of = [&](const char* key) {
    return nlohmann::json::parse(Client()->Get("/api/overview", With(key))->body)["runs"].size();
  };
  EXPECT_EQ(runs_of("admin"), 1u);
  EXPECT_EQ(runs_of("user"), 0u);
  for (const char* path : {"/api/run?run=tiny", "/api/steps?run=tiny", "/api/events?run=tiny",
                           "/api/checkpoints?run=tiny", "/api/timeline?run=tiny"}) {
    EXPECT_EQ(Status(path, With("user")), 404) << path;
  }
  EXPECT_EQ(Status("/api/events", With("user")), 403);
  EXPECT_EQ(Status("/api/run?run=tiny", With("admin")), 200);
  source_.SetOwner("ulla");
  EXPECT_EQ(Status("/api/run?run=tiny", With("user")), 200);
  EXPECT_EQ(Status("/api/workers", With("user")), 200);
}

TEST_F(TlsDashboardTest, PlainRequestsAndSilenceEnd) {
  httplib::Client plain("127.0.0.1", ParseHostPort(server_->address())->port);
  plain.set_read_timeout(20);
  EXPECT_FALSE(plain.Get("/"));
  EXPECT_EQ(Status("/"), 200);
}

TEST_F(TlsDashboardTest, AStreamIsEncryptedToo) {
  std::string text;
  (void)Client()->Get("/api/live?run=tiny", With("admin"), [&](const char* data, size_t size) {
    text.append(data, size);
    return text.find("event: run") == std::string::npos;
  });
  EXPECT_THAT(text, HasSubstr("event: overview"));
}

TEST(TlsFilesTest, FilesThatDoNotFitAreRefused) {
  const longhaul::testing::TempDir folder;
  const std::string certificate = folder.path() + "/c.pem", key = folder.path() + "/k.pem";
  FakeSource source;
  const auto start = [&] {
    return DashboardServer::Start({.listen = "127.0.0.1:0",
                                   .reports = "",
                                   .version = "",
                                   .certificate_file = certificate,
                                   .key_file = key},
                                  &source)
        .status();
  };
  EXPECT_TRUE(absl::IsFailedPrecondition(start()));
  longhaul::testing::WriteSelfSigned(certificate, folder.path() + "/other.pem");
  longhaul::testing::WriteSelfSigned(folder.path() + "/other2.pem", key);
  EXPECT_TRUE(absl::IsFailedPrecondition(start()));
  EXPECT_THAT(std::string(start().message()), HasSubstr("k.pem"));
  longhaul::testing::WriteSelfSigned(certificate, key);
  EXPECT_TRUE(start().ok()) << start();
}

TEST(JoiningTest, CommandsFitHowTheCoordinatorListens) {
  const auto of = [](const Joining& joining) {
    return nlohmann::json::parse(JoiningJson(joining));
  };
  const auto here = of({.address = "127.0.0.1:7070", .host = "desk", .token_file = "/s/token"});
  EXPECT_EQ(
      here["here"],
      "longhaul-worker --coordinator 127.0.0.1:7070 --token-file /s/token --state-dir worker");
  EXPECT_TRUE(here["there"].is_null());
  EXPECT_EQ(here["submit"],
            "longhaul --coordinator 127.0.0.1:7070 --token-file /s/token submit run.yaml");
  const auto all = of({.address = "0.0.0.0:7070", .host = "desk", .token_file = "/my runs/token"});
  EXPECT_EQ(all["here"],
            "longhaul-worker --coordinator 127.0.0.1:7070 --token-file '/my runs/token' "
            "--state-dir worker");
  EXPECT_EQ(all["token"],
            "longhaul --coordinator 127.0.0.1:7070 --token-file '/my runs/token' token create "
            "--role worker --uses 10 --ttl 1d > worker.token");
  EXPECT_EQ(all["there"],
            "longhaul-worker --coordinator desk:7070 --token-file worker.token --state-dir worker");
  const auto open = of({.address = "127.0.0.1:1", .host = "", .token_file = "", .insecure = true});
  EXPECT_EQ(open["here"],
            "longhaul-worker --coordinator 127.0.0.1:1 --insecure --state-dir worker");
}

}  // namespace
}  // namespace longhaul::coordinator
