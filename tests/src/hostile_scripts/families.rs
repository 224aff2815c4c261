//! The hostile scripts by what they try. In a template `«3..9»` is a number and `«a|b»` one of
//! these texts; each script draws its own.

/// A family: its name, the ends that its scripts may have, and their templates.
pub(super) type Family = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// All families. A script ends as `done`, as `failed`, or by the limit that is named; by that of
/// time and of computing always.
pub(super) const FAMILIES: [Family; 16] = [
    ("loops", &[], &LOOPS),
    ("memory", &["memory"], &MEMORY),
    (
        "regular expressions",
        &["done", "failed", "memory"],
        &EXPRESSIONS,
    ),
    ("recursion", &["depth", "memory"], &RECURSION),
    ("parsers", &["depth", "failed", "memory", "done"], &PARSERS),
    ("promises", &["failed", "memory"], &PROMISES),
    (
        "output",
        &["output", "depth", "memory", "done", "failed"],
        &OUTPUT,
    ),
    (
        "call storms",
        &["calls", "memory", "done", "failed"],
        &STORMS,
    ),
    (
        "prototypes",
        &["memory", "depth", "calls", "done", "failed"],
        &PROTOTYPES,
    ),
    (
        "generators",
        &["memory", "depth", "done", "failed"],
        &GENERATORS,
    ),
    (
        "throwers",
        &["failed", "depth", "memory", "done"],
        &THROWERS,
    ),
    ("modules", &["failed", "done"], &MODULES),
    ("unicode", &["done", "failed"], &UNICODE),
    ("names", &["failed"], &NAMES),
    (
        "survivors",
        &["memory", "depth", "calls", "output", "done"],
        &SURVIVORS,
    ),
    (
        "long steps",
        &["memory", "depth", "done", "failed"],
        &LONG_STEPS,
    ),
];

const LOOPS: [&str; 13] = [
    "for (;;);",
    "for (let i = 0;; i = (i + «1..99») % «100..9999») Math.«sqrt|sin|cbrt»(i)",
    "while («true|1|[]|'x'») { try { throw «1..9» } catch {} finally { continue } }",
    "outer: for (;;) { inner: do { continue «outer|inner» } while («true|'x'») }",
    "let a = «1..9»; do { a = [a].at(-1) } while (a)",
    "const o = { a: 1 }; for (const k in o) { for (;;) { o[k + 1] = k; delete o[k + 1] } }",
    "for (;;) { try { for (;;); } catch {} }",
    "switch («1..3») { default: for (;;) { eval('«1..9» + «1..9»') } }",
    "const f = «() => 1|function () {}|async () => 1|class {}»; for (;;) f.toString()",
    "let s = 0; for (;;) for (const c of '«x|ü|😀»'.repeat(«1..999»)) s ^= c.codePointAt(0)",
    "label: for (;;) { try { break label } finally { continue } }",
    "const a = [«1..9», «1..9»]; for (;;) a.«reverse|sort»()",
    "const m = new Map([[1, 1]]); for (const [k] of m) { m.delete(k); m.set(k, k) }",
];

const MEMORY: [&str; 18] = [
    "const a = []; for (;;) a.push(new Array(«9..9999»).fill(a.length))",
    "let s = '«x|ü|😀»'; for (;;) s += s",
    "const k = [], m = new «Map|WeakMap»(); for (let i = 0;; i++) { const o = { i }; k.push(o); m.set(o, 'x'.repeat(i % «9..9999») + i) }",
    "const a = []; for (;;) a.push(new «Uint8Array|Float64Array|BigInt64Array|ArrayBuffer»(«999..999999»))",
    "const a = []; for (let i = 0;; i++) a.push('x'.repeat(«9..99999») + i)",
    "const o = {}; for (let i = 0;; i++) o['k' + i] = { i, o }",
    "const a = []; for (;;) a.push(() => a)",
    "const a = []; for (;;) a.push(Symbol('x'.repeat(«1..999»)))",
    // No more than such an array may have anywhere: 2 GiB.
    "new «Uint8Array|Uint16Array|Float64Array|ArrayBuffer»(«100..260»e6)",
    "const a = new Array(«1..9»e5).fill('x').map((x, i) => [x, i]); for (;;) a.push(...a.slice(0, 999))",
    "let a = [1]; for (;;) a = a.concat(a)",
    "let a = { a: 1 }; for (;;) a = { ...a, ['k' + Math.random()]: [a] }",
    "const a = []; for (let i = 0;; i++) a.push(String(i).padStart(«9..9999»))",
    "'x'.repeat(«100..536»e6)",
    "'x'.padEnd(«100..536»e6, 'ab')",
    "const s = new Set(); for (let i = 0;; i++) s.add(i + 'x'.repeat(«1..99»))",
    "const a = []; for (;;) a.push(new WeakRef({ a: new Array(«9..999») }))",
    "let p = Promise.resolve(); for (;;) p = p.then(() => «1..9»)",
];

const EXPRESSIONS: [&str; 15] = [
    "return /(a+)+$/.test('a'.repeat(«20..40») + 'b')",
    "return /(.*)*x/s.exec('y'.repeat(«9..99999»))",
    "return /(x+x+)+y/.test('x'.repeat(«20..40»))",
    "return new RegExp('('.repeat(«9..99999») + ')'.repeat(«9..99999»))",
    "return new RegExp('a{«1..99999»}{«1..99999»}').test('a'.repeat(999))",
    "return new RegExp('(?:a|aa)+'.repeat(«1..99») + 'b').test('a'.repeat(«30..99»))",
    "return /(?<=(a+)+b)c/.test('a'.repeat(«20..40») + 'c')",
    "return '«a|ab|aab»'.repeat(«1..9999»).replace(/((a|b)*?)*c/g, 'x').length",
    "return 'a'.repeat(«9..99999»).split(/(?:)/u).length",
    "return /\\p{L}+(?:\\p{Nd}*)*!/u.test('ab1'.repeat(«9..999»))",
    "return /([^]*)*\\1z/.exec('z'.repeat(«9..9999»))",
    "const r = /a*/y; for (;;) r.exec('a'.repeat(«1..999»))",
    "return new RegExp('[' + '\\\\u{1F600}-\\\\u{1F64F}'.repeat(«1..9999») + ']', 'u').test('x')",
    "return new RegExp('(?<n' + '«a|\\u0000|->».'.repeat(«1..99») + ')')",
    "Object.defineProperty(RegExp.prototype, 'exec', { value() { for (;;); } }); return 'a'.match(/a/«g|u|y»)",
];

const RECURSION: [&str; 18] = [
    "(function f(n) { return f(n + «1..9») + f(n + 2) })(0)",
    "const f = () => g(), g = () => f(); «f|g»()",
    "const o = { get a() { return this.a } }; o.a",
    "const o = { toString() { return `${this}` } }; String(o)",
    "const o = { valueOf() { return +this } }; +o",
    "class A { constructor() { new A() } } new A()",
    "const p = new Proxy({}, { get: (t, k, r) => r[k] }); p.a",
    "let p = {}; for (let i = 0; i < «19999..99999»; i++) p = new Proxy(p, {}); p.x",
    "let a = []; for (let i = 0; i < «19999..99999»; i++) a = [a]; JSON.stringify(a)",
    "let a = []; for (let i = 0; i < «19999..99999»; i++) a = [a]; a.flat(Infinity)",
    "let a = []; for (let i = 0; i < «19999..99999»; i++) a = [a]; String(a)",
    "[1].«map|forEach|some|flatMap»(function f() { [1].«map|forEach|some|flatMap»(f) })",
    "[2, 1].sort(function f() { [2, 1].sort(f); return 0 })",
    "'x'.replace('x', function f() { return 'x'.replace('x', f) })",
    "async function f() { await f() } await f()",
    "Reflect.apply(function f() { Reflect.apply(f, null, []) }, null, [])",
    "let f = () => 1; for (let i = 0; i < «19999..99999»; i++) f = f.bind(); f()",
    "const f = () => { try { f() } catch { f() } }; f()",
];

const PARSERS: [&str; 9] = [
    "JSON.parse('«[|{\"a\":»'.repeat(«9..999999»))",
    "eval('«(|[|!|{|a=>|if(1)|`${»'.repeat(«9999..99999»))",
    "new Function('«(|[|!|{|a=>|for(;;)»'.repeat(«9999..99999»))",
    "eval('1' + '«+1|**1|,1|?1:1|.a|[0]|()»'.repeat(«9999..99999»))",
    "eval('const ' + '«[|{a:»'.repeat(«9999..99999») + 'a')",
    "eval('var ' + Array.from({ length: «999..99999» }, (_, i) => 'a' + i).join())",
    "eval('function f(' + Array.from({ length: «999..99999» }, (_, i) => 'a' + i).join() + '){}')",
    "eval('switch (1) {' + Array.from({ length: «999..99999» }, (_, i) => `case ${i}:`).join('') + '}'); throw 1",
    "new RegExp('«(|(?:|(?=|[|a{1}»'.repeat(«9..99999»))",
];

const PROMISES: [&str; 18] = [
    "await new Promise(() => {})",
    "await { then() {} }",
    "for (;;) await «0|null|{}»",
    "(async () => { for (;;) await 0 })(); await new Promise(() => {})",
    "(async function g() { await 0; g(); g() })(); await new Promise(() => {})",
    "await Promise.race([])",
    "await Promise.all([new Promise(() => {}), ...Array(«1..999»).fill(1)])",
    "let p = new Promise(() => {}); for (let i = 0; i < «9..9999»; i++) p = p.«then|finally»(() => p); await p",
    "await new Promise((resolve) => resolve({ then(f) { f(this) } }))",
    "await Promise.any(Array.from({ length: «1..999» }, () => Promise.reject(new Error('x'))))",
    "async function* g() { for (;;) yield 0 } for await (const x of g());",
    "await Promise.reject({ then: «1..9» })",
    "Promise.reject('unseen'); await new Promise(() => {})",
    "await (async () => { try { await new Promise(() => {}) } finally { for (;;); } })()",
    "await { get then() { throw '«a|b»' } }",
    "await new (class extends Promise { constructor(f) { super(f); for (;;); } })(() => {})",
    "const f = (n) => Promise.resolve(n).then(f); await f(1)",
    "let end; const p = new Promise((f) => { end = f }); end(p); await p",
];

const OUTPUT: [&str; 17] = [
    "return 'x'.repeat(«1..9»e6)",
    "return Array.from({ length: «9..99999» }, (_, i) => ({ i, s: 'x'.repeat(«1..99») }))",
    "for (;;) console.log('x'.repeat(«1..9999»))",
    "for (let i = 0; i < «9..9999»; i++) console.«log|error»(i, { i }, [i]); return 1",
    "let a = 1; for (let i = 0; i < «50..200»; i++) a = «[a]|{ a }»; return a",
    "await tools.one.echo({ a: 'x'.repeat(«1..9»e6) })",
    "let a = 1; for (let i = 0; i < «50..200»; i++) a = [a]; await tools.one.echo({ a })",
    "return { toJSON() { return 'x'.repeat(«1..9»e6) } }",
    "const a = {}; a.a = a; return a",
    "const a = []; a[«99..4294967294»] = 1; return a",
    "const o = {}; for (let i = 0; i < «99..99999»; i++) o['«x|ü|\\u2028»' + i] = i; return o",
    "return '\\u0000\\\"\\\\'.repeat(«9..999999»)",
    "return { type: 'image', data: 'x'.repeat(«1..4000000»), mimeType: 'image/png' }",
    "return Array(«1..9999»).fill({ type: 'text', text: '' })",
    "throw 'x'.repeat(«1..9»e6)",
    "throw new Error('x'.repeat(«1..9»e6))",
    "return await tools.one.huge({ bytes: «1..9»000000 })",
];

const STORMS: [&str; 15] = [
    "for (let i = 0; i < «900..1200»; i++) await tools.one.echo({ i })",
    "await Promise.all(Array.from({ length: «17..1500» }, (_, i) => tools.«one|two».echo({ i })))",
    "for (;;) tools.one.echo({})",
    "for (let i = 0; i < «1..999»; i++) tools.one.echo({ i })",
    "await tools.one.never({})",
    "await Promise.all(Array.from({ length: «1..99» }, () => tools.«one|two».never({})))",
    "await Promise.race([tools.one.never({}), tools.one.echo({})]); return 1",
    "await Promise.all([tools.one.echo({}), tools.one.nothing({})])",
    "for (let i = 0; i < «1..99»; i++) try { await tools['s' + i].t() } catch {} return 1",
    "await Promise.all(Array.from({ length: «1..99» }, () => find('«echo|x|😀»')))",
    "for (let i = 0; i < «1..99»; i++) await results.read('«x|../x|0»').catch(() => 0)",
    "await tools.colibri.run_script({ script: 'return 1' })",
    "for (;;) await tools.one.echo({ a: 'x'.repeat(«1..9999») })",
    "const l = []; for (;;) l.push(tools.one.echo({ a: 'x'.repeat(99999) }))",
    "const f = () => tools.two.echo({}).then(f); await Promise.all(Array.from({ length: «1..99» }, f))",
];

const PROTOTYPES: [&str; 18] = [
    "Promise.prototype.then = () => { for (;;); }; await tools.one.echo()",
    "JSON.stringify = () => '{}]'; return await tools.one.echo({})",
    "JSON.parse = JSON.stringify = Map = Promise = undefined; await tools.one.echo({})",
    "Object.prototype.toJSON = function () { return «this|1|{}» }; return await tools.one.echo({})",
    "Object.defineProperty(Object.prototype, '«content|result|error|then|structuredContent»', { get() { throw 1 } }); await tools.one.echo()",
    "Object.prototype.«content|error|isError|then|_meta» = «1|'x'|() => {}|null»; return await tools.one.echo()",
    "Array.prototype.«filter|map|join» = «undefined|() => { for (;;); }»; return await tools.one.echo()",
    "globalThis.Promise = class { constructor(f) { f(f, f) } }; await tools.one.echo()",
    "Map.prototype.«get|set|delete» = () => () => { for (;;); }; await tools.one.echo()",
    "String.prototype.replace = () => { throw 1 }; await tools.one.nothing()",
    "Function.prototype.call = Function.prototype.apply = () => { for (;;); }; return await tools.one.echo()",
    "Object.freeze(globalThis); Object.freeze(Object.prototype); return await tools.one.echo({})",
    "for (const k of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[k] } catch {} return 1",
    "Array.prototype[Symbol.iterator] = function* () { for (;;) yield 1 }; console.log(1); return await tools.one.echo()",
    "Object.setPrototypeOf(Object.prototype, new Proxy({}, { get() { throw 1 } }))",
    "tools.one = 1; tools.__proto__ = null; return await tools.one.echo()",
    "ToolError.prototype.name = 5; Error.prototype.name = { toString() { for (;;); } }; await tools.one.nothing()",
    "Object.defineProperty(Promise, Symbol.species, { get() { throw «1|null|new Error('x')» } }); return await tools.one.echo()",
];

const GENERATORS: [&str; 12] = [
    "function* g() { for (;;) yield 1 } return [...g()]",
    "function* g() { yield* g() } return [...g()]",
    "function* g() { try { for (;;) yield 1 } finally { for (;;); } } for (const x of g()) break",
    "const it = { [Symbol.iterator]() { return this }, next() { return { done: false } } }; Math.max(...it)",
    "const it = { [Symbol.iterator]() { return this }, next() { return this } }; new «Set|Map|Promise.all|Array.from»(it)",
    "const [...a] = (function* () { let i = 0; for (;;) yield 'x'.repeat(i++) })()",
    "const l = []; function* g() { yield l } for (;;) l.push(g())",
    "const g = (function* () { yield; g.next() })(); g.next(); g.next()",
    "const it = { [Symbol.iterator]: () => ({ next: () => ({ value: it, done: false }) }) }; Object.fromEntries(it)",
    "async function* g() { yield* g() } for await (const x of g());",
    "return Array.from({ length: «1..9»e«3..9» }, () => 1).length",
    "return Array.from({ get length() { for (;;); } })",
];

const THROWERS: [&str; 18] = [
    "return new Proxy({}, { ownKeys() { «for (;;);|throw 1|return [1]» } })",
    "return { toJSON() { return { toJSON() { return this } } } }",
    "return { toJSON() { «for (;;);|throw null|throw undefined|return this» } }",
    "throw new Proxy(new Error('x'), { get() { «for (;;);|throw 1» } })",
    "throw { get message() { throw 1 }, get stack() { return 5 } }",
    "const e = new Error(); e.stack = 'x'.repeat(1e«1..6»); e.name = '\\ud800'; throw e",
    "throw «null|undefined|0|''|Symbol('x')|1n|[]|() => 1|NaN»",
    "const e = new Error('x'); e.cause = e; Object.defineProperty(e, 'name', { get() { throw e } }); throw e",
    "return { get a() { throw new «Error|RangeError|TypeError|AggregateError»('x') } }",
    "return «1n|Symbol('x')|{ a: 1n }|[() => 1]|new Map([[1, 1]])|NaN|-0|new Uint8Array(9)»",
    "console.log({ toJSON() { throw 1 }, toString() { throw 2 } })",
    "console.log(new Proxy(() => 1, { get() { «for (;;);|throw 1» } }))",
    "await tools.one.echo({ get a() { «for (;;);|throw 1|return this» } })",
    "await tools.one.echo(new Proxy({}, { ownKeys() { «for (;;);|throw 1|return ['a']» } }))",
    "throw Object.assign(new ToolError('a', 'b', 'c', «1|{}|'x'.repeat(99999)», 'e'), { advice: «{}|1|'y'» })",
    "throw Object.assign(new Error('out of memory'), { name: «1|{}|'ToolError'» })",
    "const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); «throw|return» proxy",
    "class E extends Error { get line() { throw 1 } get [Symbol.toStringTag]() { for (;;); } } throw new E('x')",
];

const MODULES: [&str; 18] = [
    "return 1 })(); for (;;); (async () => {",
    "import fs from '«node:fs|./x.js|https://a.example/x.js|data:text/javascript,1|script»'",
    "export * from '«script|x»'",
    "await import('«script|x|../../etc/passwd»')",
    "export default 1; export default «2|1»",
    "const a = ;",
    "let a: «number|string|any» = 1",
    "export { «nothing|a, a» }",
    "}}}}«)|]|}»",
    "'use strict'; with ({}) { a = 1 }",
    "return return «1..9»",
    "})(); for (;;); (async () => {",
    "`${`${`",
    "/* «1..9»",
    "const a = 1; const a = «1..9»;",
    "class { #a; #a }",
    "import.meta.«url|x».y.z",
    "#!/bin/sh\nexec «sh|ls» -c id",
];

const UNICODE: [&str; 14] = [
    "return '\\ud800' + String.fromCharCode(0).repeat(«1..99»)",
    "return '\\u202e«abc|\\u2066|\\u0007».\\u200b'.repeat(«1..999»)",
    "console.log('\\u001b[2J\\u001b]0;x\\u0007'.repeat(«1..99»)); return 1",
    "const \\u0061\\u0062 = «1..9»; return ab",
    "return 'e' + '\\u0301'.repeat(«1..99999»)",
    "return '«ﷺ|😀|\\u{10ffff}|ß|İ»'.repeat(«1..9999»).normalize('NFKD').toUpperCase().length",
    "throw new Error('\\ud800«\\u0000|\\u202e|\\n»'.repeat(«1..99»))",
    "return { '\\ud800': '\\udfff', '\\u0000': «1..9» }",
    "return await tools.one.echo({ a: '\\ud800«\\u0000|\\ufffe|x»' })",
    "return await tools.one.echo({ '\\u0000\\u202e': '\\u2028\\u2029' })",
    "\u{feff}return '\u{2028}«1..9»'",
    "return ['«é|é»' === '«é|é»', '😀'.length]",
    "return decodeURIComponent('%«E0%A4%A|FF|00|F0%9F%98%80»')",
    "return String.fromCharCode(...Array.from({ length: «1..9999» }, (_, i) => i * 7 % 65536)).length",
];

const NAMES: [&str; 11] = [
    "await tools['«__proto__|constructor|toString|hasOwnProperty»'].x({})",
    "await tools.one['«__proto__|constructor|../echo|echo\\u0000|ECHO|»']({})",
    "await tools['«../one|one/echo|one\\n|ONE|\\u0000|\\ud800|*»'].echo({})",
    "await tools['x'.repeat(«1..99999»)].echo({})",
    "await tools.one['x'.repeat(«1..99999»)]({})",
    "await tools['a__b__«c|__»']({})",
    "await tools.colibri['«external_mcp_call|../status|status\\n|next_task|»']({ server: 'one', tool: 'nothing' })",
    "await tools.one.echo(«1|null|[]|'x'|true|Symbol('x')»)",
    "await tools['\\u202e«one|eno»'].echo({})",
    "await schema('«x|one.|.echo|__|»')",
    "await tools.one.nothing({ '__proto__': { a: 1 }, ['x'.repeat(«1..9999»)]: 1 })",
];

const SURVIVORS: [&str; 10] = [
    "for (;;) try { (function f() { f() })() } catch {}",
    "for (;;) try { new Uint8Array(1e9) } catch {}",
    "let n = 0; try { const a = []; for (;;) a.push('x'.repeat(«9..9999») + n++) } catch {} return n",
    "for (;;) try { await tools.one.nothing({}) } catch {}",
    "try { for (;;) await tools.one.echo({}) } catch {} finally { for (;;); }",
    "try { await tools.one.echo({ a: 'x'.repeat(5e6) }) } catch {} return «1..9»",
    "try { for (;;) tools.one.echo({}) } catch {} await new Promise(() => {})",
    "const f = () => { try { f() } finally { f() } }; f()",
    "let d = 0; const f = () => { d++; f() }; for (let i = 0; i < «1..999»; i++) try { f() } catch {} return d > 0",
    "for (let i = 0; i < «1..9999»; i++) try { JSON.parse('['.repeat(99999)) } catch {} return 1",
];

const LONG_STEPS: [&str; 16] = [
    "return String((2n ** «1..99»00000n) ** «1..99»n).length",
    "let a = 3n; for (;;) a *= a",
    "return String(BigInt('9'.repeat(«9..999999»))).length",
    "return BigInt.asUintN(64, 1n << «1..99»000000n) % 7n === 0n",
    "return new Array(«1..4294967295»).join('«x|»').length",
    "return new Array(«1..4294967295»).fill(0).length",
    "return new Array(«1..4294967295»).«indexOf|includes|lastIndexOf|findLast»(1)",
    "return Array.from({ length: «1..9»e5 }, Math.random).sort().length",
    "const a = new Uint8Array(«1..60»e6); return [a.sort().length, a.reverse().length, a.indexOf(1)]",
    "return 'x'.repeat(«1..60»e6).«split('')|indexOf('y')|replaceAll('x', 'yy')|toUpperCase()|normalize()».length",
    "return [].concat.apply([], { length: «1..9»e«3..9» }).length",
    "const a = []; a.length = «1..4294967295»; return [a.«reverse|sort|shift»()].length",
    "return Object.keys('x'.repeat(«1..9»e6)).length",
    "return encodeURIComponent('😀'.repeat(«1..9»e5)).length",
    "return ('x'.repeat(«1..30»e6) + 'y').lastIndexOf('«x|z»y')",
    "return JSON.stringify(new Array(«1..9»e«3..7»)).length",
];

/// Words before and after a script, and the ends that it may have besides for these.
pub(super) const AROUND: [(&str, &str, &[&str]); 5] = [
    ("", "", &[]),
    ("await (async () => { ", "\n})();", &["done"]),
    ("try { ", "\n} catch {} for (;;);", &["done", "failed"]),
    (
        "(async () => { ",
        "\n})(); await tools.one.echo({});",
        &["done", "failed"],
    ),
    ("for (let i = 0; i < 3; i++) { ", "\n}", &["done"]),
];
