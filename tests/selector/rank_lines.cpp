// Reads problems from stdin, one a line, ranks each with every one of four threads, and prints for each
// the candidates in their order and their ln(time), as hexadecimal floats.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tile_oracle/selector.hpp"
#include "tile_oracle/selector_c.h"

namespace {

std::string answer(const tile_oracle::Selector& selector, const std::vector<double>& values) {
    std::vector<double> log_time(selector.size());
    selector.log_times(values, log_time);
    std::string text = std::to_string(selector.pick(values));
    char number[64];
    for (const auto& [kernel, tflops] : selector.rank(values)) {
        std::snprintf(number, sizeof number, " %u:%a:%a", kernel, log_time[kernel], tflops);
        text += number;
    }
    return text;
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) return 2;
    const auto selector = tile_oracle::Selector::load(words[1]);
    std::vector<std::vector<double>> problems;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        problems.emplace_back();
        for (double value; in >> value;) problems.back().push_back(value);
    }
    std::vector<std::vector<std::string>> answers(4);
    std::vector<std::thread> threads;
    for (auto& own : answers)
        threads.emplace_back([&] {
            for (int round = 0; round < 3; ++round) {
                own.clear();
                for (const auto& problem : problems) own.push_back(answer(selector, problem));
            }
        });
    for (auto& thread : threads) thread.join();
    for (const auto& own : answers)
        if (own != answers[0]) return 3;
    for (const auto& line : answers[0]) std::puts(line.c_str());

    try {
        selector.pick(tile_oracle::GroupedConvProblem{.C = 8, .K = 8, .G = 3});
        return 4;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    try {
        selector.pick(tile_oracle::GemmProblem{});
        return 5;
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    const tile_oracle::GroupedConvProblem problem{.N = 2, .C = 64, .K = 64, .Hi = 20, .Wi = 20, .Y = 3, .X = 3};
    return selector.rank(problem, 1)[0].kernel == selector.pick(problem) ? 0 : 6;
}
