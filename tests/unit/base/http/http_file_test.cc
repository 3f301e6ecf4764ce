#include "base/http/http_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <atomic>
#include <string>
#include <thread>

namespace longhaul::http {
namespace {

using ::testing::HasSubstr;

std::string Text(uint64_t bytes) {
  std::string text;
  for (uint64_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + (i * i + 3 * i) % 26);
  return text;
}

// A web server on the loopback interface.
class HttpFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto file = [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(text_, "application/octet-stream");
    };
    server_.Get("/data/a file", file);
    server_.Get("/moved", [](const httplib::Request&, httplib::Response& response) {
      response.set_redirect("/data/a%20file", 302);
    });
    server_.Get("/round", [](const httplib::Request&, httplib::Response& response) {
      response.set_redirect("round", 302);
    });
    server_.Get("/whole", [this](const httplib::Request& request, httplib::Response& response) {
      const_cast<httplib::Request&>(request).ranges.clear();
      response.set_content(text_, "text/plain");
    });
    server_.Get(R"(/status/(\d+))", [](const httplib::Request& request, httplib::Response& out) {
      out.status = std::stoi(request.matches[1]);
    });
    server_.Get("/broken", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content_provider(text_.size(), "text/plain",
                                    [this](size_t offset, size_t, httplib::DataSink& sink) {
                                      if (offset > 0) return false;
                                      return sink.write(text_.data(), 10);
                                    });
    });
    server_.Get("/slow", [this](const httplib::Request&, httplib::Response& response) {
      response.set_chunked_content_provider("text/plain", [this](size_t, httplib::DataSink& sink) {
        const bool written = sink.write("x", 1);
        ++slow_pieces_;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return written;
      });
    });
    // Otherwise stop() waits for clients that keep their connections.
    server_.set_keep_alive_max_count(1);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  void TearDown() override {
    server_.stop();
    thread_.join();
  }
  std::string At(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }

  const std::string text_ = Text(300'000);
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  std::atomic<int> slow_pieces_ = 0;
};

std::string AsText(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class Result>
std::string Error(const Result& result) {
  EXPECT_FALSE(result.ok());
  return std::string(Message(result.status()));
}

TEST_F(HttpFileTest, ReadsRangesAndAll) {
  const std::string address = AddressOf(At("/data/"), "a file");
  EXPECT_EQ(address, At("/data/a%20file"));
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, uint64_t>{0, 1}, {0, 300'000}, {299'999, 1}, {70'001, 131'072}}) {
    const auto range = ReadRange(address, offset, bytes);
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(AsText(*range), text_.substr(offset, bytes));
  }
  EXPECT_EQ(SizeOf(address).value(), 300'000);
  EXPECT_EQ(ReadAll(address, 300'000).value(), text_);
}

TEST_F(HttpFileTest, FollowsRedirects) {
  EXPECT_EQ(AsText(ReadRange(At("/moved"), 5, 7).value()), text_.substr(5, 7));
  EXPECT_EQ(SizeOf(At("/moved")).value(), 300'000);
  EXPECT_EQ(ReadAll(At("/moved"), 1 << 20).value(), text_);
  EXPECT_THAT(Error(SizeOf(At("/round"))), HasSubstr("expected at most 10 redirects"));
}

TEST_F(HttpFileTest, ServersWithoutRangesAreRefused) {
  EXPECT_THAT(Error(SizeOf(At("/whole"))), HasSubstr("the server gives whole files alone"));
  EXPECT_THAT(Error(ReadRange(At("/whole"), 5, 7)), HasSubstr("answers otherwise (200"));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRange(At("/whole"), 5, 7).status()));
  EXPECT_EQ(ReadAll(At("/whole"), 1 << 20).value(), text_);
}

TEST_F(HttpFileTest, ErrorsSayWhetherTheyMayPass) {
  const auto code = [&](int status) {
    return ReadRange(At("/status/" + std::to_string(status)), 0, 1).status().code();
  };
  EXPECT_EQ(code(404), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(403), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(code(500), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(503), absl::StatusCode::kUnavailable);
  EXPECT_EQ(code(429), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Error(ReadAll(At("/status/404"), 9)), HasSubstr("the server answers 404"));
  EXPECT_TRUE(absl::IsUnavailable(ReadAll(At("/broken"), 1 << 20).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadAll(At("/data/a%20file"), 299'999).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRange(At("/data/a%20file"), 299'990, 100).status()));
}

TEST_F(HttpFileTest, AServerThatIsNotThereMayComeBack) {
  server_.stop();
  EXPECT_TRUE(absl::IsUnavailable(SizeOf(At("/data/a%20file")).status()));
}

TEST_F(HttpFileTest, EndsWhenItIsTold) {
  const auto read = ReadAll(At("/slow"), 1 << 20, [this] { return slow_pieces_ > 3; });
  EXPECT_TRUE(absl::IsCancelled(read.status())) << read.status();
}

TEST(HttpFile, WhatIsNoAddressIsRefused) {
  EXPECT_TRUE(IsAddress("https://a/b"));
  EXPECT_FALSE(IsAddress("ftp://a/b"));
  EXPECT_FALSE(IsAddress("/a/b"));
  for (const char* address : {"", "a", "http://", "ftp://a/b", "https://"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(SizeOf(address).status())) << address;
  }
}

}  // namespace
}  // namespace longhaul::http
