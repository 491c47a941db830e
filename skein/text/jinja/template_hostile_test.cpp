// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Templates that would run for ever, fill the memory or break the stack.
#include <gtest/gtest.h>

#include "skein/core/json.h"
#include "skein/core/testing.h"
#include "skein/text/jinja/json_value.h"
#include "skein/text/jinja/template.h"

namespace skein::text::jinja {
namespace {

std::string why_refused(const std::string& source) {
  return refusal<TemplateError>([&] { Template(source, "t").render({}); });
}

void expect_refused(const std::string& source, const std::string& why) {
  EXPECT_PRED2(contains, why_refused(source), why) << source.substr(0, 100);
}

std::string times(int count, const std::string& text) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

constexpr const char* kSteps = "more than 1000000 steps";
constexpr const char* kDeep = "deeper than";

TEST(HostileTemplate, LoopsEnd) {
  expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 kSteps);
  expect_refused("{{ range(100001) | length }}", "range() of more than 100000 items");
  expect_refused("{{ range(0, -9223372036854775807, -1) }}", "range() of more than");
}

TEST(HostileTemplate, CharactersThatNoExpressionHasAreNamed) {
  expect_refused("{{ \xDE\x82}\xDE\x82 }}",
                 "a character that no expression has");  // 2 + 1 + 2 bytes
  expect_refused("{{ \xF0\x9F\x98\x80", "a character that no expression has");
}

TEST(HostileTemplate, TextIsLimited) {
  expect_refused("{{ 'x' * 1000000000000 }}", kSteps);
  expect_refused("{{ 'x' * 9223372036854775807 }}", kSteps);
  expect_refused("{{ [0] * 9223372036854775807 }}", kSteps);
  expect_refused("{% set x = 'x' * 1000000 %}{% for i in range(20) %}{{ x }}{% endfor %}",
                 "more than 16777216 bytes of text");
  expect_refused(
      "{% set n = namespace(x='xxxxxxxx') %}"
      "{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
      kSteps);
  expect_refused("{% set x = 'x' * 100000 %}{{ x.replace('', x) }}", kSteps);
  expect_refused("{% set x = 'x' * 100000 %}{{ x | replace('x', x) }}", kSteps);
  expect_refused(
      "{% set x = 'x' * 100000 %}{{ ('x' * 9999) | indent(x) }}{{ x.join(range(99) | "
      "map('string')) }}{{ x.join(x) }}",
      kSteps);
}

TEST(HostileTemplate, SharedListsAreWeighedBeforeTheyArePrinted) {
  const std::string laugh =
      "{% set n = namespace(x=['ha'], y=['ha']) %}{% for i in range(60) %}"
      "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}";
  for (const char* use :
       {"{{ n.x }}", "{{ n.x | tojson }}", "{{ n.x == n.y }}", "{{ n.x < n.y }}",
        "{{ n.x in [n.y] }}", "{{ [n.x, n.y] | sort }}", "{{ [n.x, n.y] | unique | list }}",
        "{{ [n.x].count(n.y) }}", "{{ n.x ~ '' }}", "{{ '%s' % (n.x,) }}", "{{ '{}'.format(n.x) }}",
        "{{ [n.x, n.y] | max }}", "{{ n.x is eq(n.y) }}", "{{ [n.x] | join }}",
        "{{ n.x is sameas n.y }}"}) {
    const auto why = why_refused(laugh + use);
    EXPECT_TRUE(why.empty() || contains(why, kSteps)) << use << why;
  }
}

TEST(HostileTemplate, DepthIsLimited) {
  expect_refused(times(10000, "{% if 1 %}"), kDeep);
  expect_refused("{{ " + times(10000, "(") + "1" + times(10000, ")") + " }}", kDeep);
  expect_refused("{{ " + times(10000, "[") + times(10000, "]") + " }}", kDeep);
  expect_refused("{{ " + times(10000, "not ") + "1 }}", kDeep);
  expect_refused("{{ " + times(10000, "-") + "1 }}", kDeep);
  expect_refused("{{ 1" + times(10000, " + 1") + " }}", "too many parts");
  expect_refused("{{ x" + times(10000, ".x") + " }}", "too many parts");
  expect_refused("{{ x" + times(10000, " | string") + " }}", "too many parts");
  expect_refused("{{ 1" + times(10000, " if 1 else 1") + " }}", kDeep);
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "macros that call each other");
  expect_refused(
      "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}",
      kDeep);
  EXPECT_THROW(value_of_json(times(10000, "[") + times(10000, "]")), JsonError);
}

TEST(HostileTemplate, NamespacesThatHoldEachOtherAreFreed) {
  EXPECT_EQ(why_refused("{% set n = namespace() %}{% set n.x = n %}{% set n.y = [n] %}"), "");
  EXPECT_EQ(why_refused("{% set n = namespace(x=0) %}{% for i in range(50000) %}"
                        "{% set n.x = namespace(x=n.x) %}{% endfor %}"),
            "");
}

TEST(HostileTemplate, SizeIsLimited) {
  EXPECT_PRED2(contains, why_refused(std::string(Template::kMaxBytes + 1, 'x')),
               "more than the 1048576");
  EXPECT_EQ(why_refused("\xff"), "t: invalid UTF-8");
}

// X8. What has made other readers of templates run code: here no value has a way to Python.
TEST(HostileTemplate, PublishedPayloadsReachNothing) {
  for (const char* payload : {
           "{{ ''.__class__.__mro__[1].__subclasses__() }}",
           "{% for x in ().__class__.__base__.__subclasses__() %}{% if 'warning' in x.__name__ %}"
           "{{ x()._module.__builtins__['__import__']('os').popen('id').read() }}"
           "{% endif %}{% endfor %}",
           "{{ self.__init__.__globals__.__builtins__ }}",
           "{{ self._TemplateReference__context.cycler.__init__.__globals__.os.popen('id') }}",
           "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
           "{{ lipsum.__globals__['os'].popen('id').read() }}",
           "{{ joiner.__init__.__globals__.os.popen('id').read() }}",
           "{{ namespace.__init__.__globals__.os.popen('id').read() }}",
           "{{ request.application.__globals__.__builtins__.__import__('os') }}",
           "{{ raise_exception.__globals__.os }}",
           "{{ config.items() }}",
           "{{ '' | attr('__class__') | attr('__mro__') }}",
           "{{ ['id'] | map('system') | list }}",
           "{{ '{0.__class__.__init__.__globals__}'.format('') }}",
           "{{ '%(x)s'.__mod__({}) }}",
           "{% include '/etc/passwd' %}",
           "{% import 'os' as os %}{{ os.system('id') }}",
           "{% extends '/etc/passwd' %}",
           "{% do [].append(1) %}",
           "{{ open('/etc/passwd').read() }}",
           "{{ __import__('os').system('id') }}",
           "{{ eval('1') }}",
           "{{9|9|{",
           "{{9|9|{}}",
       }) {
    EXPECT_NE(why_refused(payload), "") << payload;
  }
  expect_refused(std::string(10 << 20, 'x'), "more than the 1048576");
}

TEST(HostileTemplate, NumbersStayInRange) {
  for (const char* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2",
        "10 ** 99", "(-9223372036854775807 - 1) // -1", "99999999999999999999"}) {
    expect_refused(std::string("{{ ") + expression + " }}", "out of range");
  }
  expect_refused("{{ 1 // 0 }}", "division by zero");
  expect_refused("{{ 1.5 % 0 }}", "division by zero");
  EXPECT_EQ(why_refused("{{ 'abc'[::9223372036854775807] }}{{ 'abc'[-9223372036854775807:] }}"
                        "{{ 'abc'[9223372036854775807] }}{{ 1e300 * 1e300 }}{{ 1e300 | int }}"),
            "");
}

TEST(HostileTemplate, MessagesAreShortAndOfOneLine) {
  EXPECT_EQ(why_refused("{{ raise_exception('no\\nerror: fake \x1b[31m') }}"),
            "t:1: the template refuses this conversation: no\\nerror: fake \\x1b[31m");
  const auto why = why_refused("{{ raise_exception('é' * 1000000) }}");
  EXPECT_LT(why.size(), 600U);
  EXPECT_PRED2(contains, why.substr(0, 600), "éé… (2000040 bytes)");
}

}  // namespace
}  // namespace skein::text::jinja
