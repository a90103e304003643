import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.TimeZone;
import java.util.TreeSet;
import org.joda.time.DateTime;
import org.joda.time.DateTimeZone;
import org.joda.time.chrono.ISOChronology;
import org.joda.time.format.DateTimeFormat;
import org.joda.time.format.DateTimeFormatter;
import org.joda.time.format.DateTimeFormatterBuilder;
import org.joda.time.format.DateTimeParser;
import org.joda.time.format.ISODateTimeFormat;

/**
 * Prints what Joda-Time reads and prints by many patterns, as the JSON of joda_times.json.
 *
 * <p>joda_times.py says how to run it.
 */
public final class JodaTimes {

  /** Patterns that are read. */
  static final String[] READ = {
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ssZ", "yyyy-MM-dd'T'HH:mm:ssZZ",
    "yyyy-MM-dd'T'HH:mm:ss.SSSZ", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yyyy-MM-dd'T'HH:mm:ss'Z'",
    "[dd/MMM/yyyy:HH:mm:ss Z]", "dd/MMM/yyyy:HH:mm:ss Z", "'['dd/MMM/yyyy:HH:mm:ss Z']'",
    "yyyyMMddHHmmssSSS", "yyyyMMddHHmmss", "yyyyMMdd", "yyyyMMddHH", "yyyyMM", "yyyy", "yyMMdd",
    "yyyy-MM-dd", "yyyy/MM/dd", "dd.MM.yyyy", "dd.MM.YYYY HH:mm", "MM/dd/yyyy", "M/d/yyyy",
    "M/d/yy h:mm a", "M/d/yyyy h:mm:ss aa", "MM/dd/yy", "d.M.yy", "yy", "yy-MM", "YY/MM/dd",
    "dd-MMM-yy", "dd MMM yyyy", "d MMMM yyyy", "MMMMM d, yyyy", "MMM dd yyyy HH:mm:ss",
    "EEE, dd MMM yyyy HH:mm:ss Z", "EEE, dd MMM yyyy HH:mm:ss z", "EEE MMM dd HH:mm:ss Z yyyy",
    "EEE MMM dd HH:mm:ss z yyyy", "EEEE, d MMMM yyyy", "E d M y", "EEE MMM dd yyyy HH:mm:ss 'GMT'Z",
    "yyyy-MM-dd HH:mm:ss.SSSSSS", "yyyy-MM-dd HH:mm:ss,SSS", "HH:mm:ss.S", "ss.SSSSSSSSSSSSSSSSSSSS",
    "yyyy-MM-dd HH:mm:ss ZZZ", "yyyy-MM-dd HH:mm:ss z", "yyyy-MM-dd'T'HH:mm:ss'['ZZZ']'",
    "yyyy-MM-dd HH:mm:ss Z z", "HH:mm", "HH:mm:ss", "h a", "K:mm a", "k:mm", "hh:mm", "KK", "a",
    "HH:mm a", "ddHH", "dd/MM HH:mm", "MMM", "d", "MM-dd", "yyyy-DDD", "yyyyDDD", "DDD", "D HH",
    "yyyy-DDD EEE", "xxxx-'W'ww-e", "xxxx'W'ww", "xxxx-ww", "xxxx", "xx-ww-e", "xxxx-'W'ww EEE",
    "xxxx'W'wwe", "xxxx e", "yyyy-MM-dd e", "yyyy-MM-dd EEEE HH", "y", "yyy", "yyyyy", "yyyyyMMdd",
    "Y-M-d", "yM", "yyyy G", "G yyyy-MM-dd", "YYYY G", "yy G", "yyyy-MM-dd {HH:mm}",
    "yyyy#MM#dd", "'#'yyyy.MM.dd", "yyyy''MM", "yyyy 'o''clock' HH", "yyyy'",
    "HH 'Uhr' mm", "'ÄÖ' yyyy", "yyyy'年'MM'月'dd'日'", "(yyyy)", "$yyyy^MM*dd+HH?mm|ss\\SS", "\"yyyy\"",
    " yyyy", "yyyy ", "yyyy-MM-ddHH:mm:ss", "HHmmss yyyyMMdd", "S", "ZZ HH", "dd MMM", "dd MMM EEE",
    "MMddyyyy", "ddMMyy", "ddMMyyHHmm", "HHmm", "DDDyyyy", "mmss", "kk:mm:ss yyyy-MM-dd",
    "yyyy-M-d'T'H:m:s.SZ", "MMMd", "ddMMMyyyy", "ddMMMyy", "YYYY-MM-dd'T'HH:mm:ss.SSSSSSSSSZZ",
    "yyyy-MM-dd'T'HH:mm:ss.SSSZZ", "yyyyMMdd'T'HHmmssSSSZ", "YYYYMMdd", "ddd/MM/yyyy HHH:mmm:sss",
    "dddMMyyyy HHHHmm", "yyyy'5'MM", "yyyy5MM", "MM'5'yyyy", "kkk:mm a yyyy", "hhh a", "hhhh:mm",
    "KKKmm a", "a hh:mm", "dd/MMM/yyyy HH:mm:ss ZZZ", "EEE, dd MMM yyyy HH:mm:ss ZZZ",
    "yyyy-DDD HH:mm:ss ZZZ", "xxxx-'W'ww-e HH:mm:ss z", "xxxx-ww EEE HH:mm:ss ZZ", "DDDD yyyy",
    "yy/MM/dd a h", "?yyyy?MM", "yyyy~MM;dd",
  };

  /** Patterns whose texts Joda reads in ways that we refuse to follow, or refuses itself. */
  static final String[] ODD = {
    "yyyy-'W'ww", "ww", "xxxx-MM-dd", "yyyy-MM-dd xxxx", "yyyy-MM-DDD", "dd DDD", "EEE", "EEE yyyy",
    "yyyy MM EEE", "yyyy yyyy", "YYYY yyyy", "HH hh", "HH kk", "EEE e", "MM MMM", "C", "CCyy", "G",
    "G MM", "zzzz", "yyyy zzzzz", "ZZZyyyy", "yyyy-MM-dd ZZZ'x'", "yyyy Z ZZZ", "Z", "z", "'text'", "'unclosed yyyy",
    "", "u", "yyyy-MM-ddTHH:mm", "yyyy n", "X", "yyyy-MM-dd VV", "l", "yyyy-MM-dd\tHH",
  };

  static final String[] PRINTED = {
    "yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSZZ", "yy/M/d", "YYYY YY Y", "xxxx-'W'ww-e", "xx",
    "x w", "E EEE EEEE EEEEE", "M MM MMM MMMM MMMMM", "D DDD DDDDD", "DD", "a aa", "h hh", "k kk",
    "K KK", "H HH", "m s", "S SS SSS SSSS SSSSSS SSSSSSSSS", "Z ZZ ZZZ z zzzz", "G C CC CCC", "d dd ddd",
    "'%d %s' yyyy%", "yyyyMMddHHmmssSSS", "''yy''", "yyyyyy", "{}#[]", "'ÄÖ' yyyy", "yyyy-MM-dd {HH}",
  };

  static final long[] MOMENTS = {
    0L, 1795147506789L, 1795147506700L, 1709210096000L, 1735603199999L, 1704067200000L,
    1767225600000L, -1L, -62135596800000L, 253402214400000L, 1782864000045L, 951782400000L,
  };

  /** Texts besides those that are printed by the patterns. */
  static final String[] TEXTS = {
    "", " ", "\"", "\"\"", "0", "5", "24", "99", "45", "46", "00", "068", "2024", "-5", "+5", "++24",
    "+24", "-24", "02024", "+02024", "20245", "-2024", "+2024", "12345", "999999999", "9999999999",
    "1795147506", "1795147506789", "9223372036854775807", "9223372036854775808", "-1795147506789",
    "1795147506789.0", "1e3", "2024-2-30", "2024-02-29", "2023-02-29", "2024-13-01", "2024-00-10",
    "2024-1-1", "2024-1-32", "24-1-1", "99-12-31", "2024/1/5", "1/5/2024", "1/5/24 3:04 pm",
    "1/5/24 3:04 Pm", "1/5/24 12:00 am", "12/31/99 12:59 PM", "13/1/24 3:04 PM", "1/5/24 0:04 AM",
    "2024-1-5 3:4:5", "2024-01-05 24:00:00", "2024-01-05 23:59:60", "2024-01-05 23:60:00",
    "2024-01-05T03:04:05Z", "2024-01-05t03:04:05z", "2024-01-05T03:04:05+00:00",
    "2024-01-05T03:04:05+0000", "2024-01-05T03:04:05-0830", "2024-01-05T03:04:05+05",
    "2024-01-05T03:04:05+5", "2024-01-05T03:04:05+05:3", "2024-01-05T03:04:05+05:",
    "2024-01-05T03:04:05+053", "2024-01-05T03:04:05+05:30:15", "2024-01-05T03:04:05+053015",
    "2024-01-05T03:04:05+05:30:15.5", "2024-01-05T03:04:05+05:30:15,25", "2024-01-05T03:04:05+053015123",
    "2024-01-05T03:04:05+05:30:", "2024-01-05T03:04:05+05:30:15.", "2024-01-05T03:04:05+24:00",
    "2024-01-05T03:04:05+23:59", "2024-01-05T03:04:05+23:60", "2024-01-05T03:04:05 +00:00",
    "2024-01-05T03:04:05", "2024-01-05T03:04", "2024-01-05T03", "2024-01-05T", "2024-01-05T3:4:5",
    "2024-01-05T03:04:05.1Z", "2024-01-05T03:04:05.123456789Z", "2024-01-05T03:04:05.1234567890Z",
    "2024-01-05T03:04:05,5", "2024-01-05T03:04:05.", "2024-01-05T03:04.5", "2024-01-05T03:04.123456789",
    "2024-01-05T03.5", "2024-01-05T03.123456789", "2024-01-05T03,25Z", "2024-01-05T03.", "2024-01-05T+01:00",
    "2024-01-05TZ", "2024-01-05Z", "2024-01-05 Z", "2024-01-05 03:04", "2024-01-05 03", "2024-01-05 ",
    "2024-01-05  03:04", "2024-01-05 03:04:05Z", "2024-01-05 03:04:05 Z", "2024-01-05 03:04:05+01:00",
    "2024-01-05 03:04:05 UTC", "2024-01-05 03:04:05 GMT", "2024-01-05 03:04:05 PST",
    "2024-01-05 03:04:05 Europe/Paris", "2024-01-05 03:04:05+01:00 Europe/Paris", "2024-01-05 UTC",
    "2024-01-05 03:04:05 Nowhere/Land", "2024-01-05T03:04:05Z America/Los_Angeles", "2024-01-05 Zulu",
    "2024-01-05 03:04:05  UTC", "2024-01-05 03:04:05 utc", "2024-01-05 03:04:05 EST",
    "2024-07-05 03:04:05 EST", "2024-07-05 03:04:05 EDT", "2024-07-05 03:04:05 MDT",
    "2024-07-05 03:04:05 CST", "2024-07-05 03:04:05 UT", "2024-03-10 02:30:00 PST",
    "2024-11-03 01:30:00 PST", "2024-11-03 01:30:00 America/New_York", "2024-03-10 02:30:00 America/New_York",
    "2024-03-31 02:30:00 Europe/Paris", "2024-10-27 02:30:00 Europe/Paris", "2024-01-05 03:04:05 Asia/Kolkata",
    "2024-01-05 03:04:05 JST", "2024-01-05 03:04:05 +01:00", "2024-01-05 03:04:05 UTC+1",
    "2024-01-05 03:04:05 Etc/GMT+5", "2024-01-05 03:04:05 +0100 EST", "2024-01-05 03:04:05 Z EST",
    "2024-04-07 02:30:00 Australia/Lord_Howe", "2024-01-05 03:04:05 GB-Eire", "1950-06-01 00:00:00 Europe/Rome",
    "2024-01-05T03:04:05[Europe/Paris]", "2024-01-05T03:04:05[europe/paris]", "T03:04:05", "t03:04", "T03",
    "T24:00", "03:04:05", "T03:04:05+01:00", "2024-W05-1", "2024-W05", "2024-W5-7", "2024-w05-3", "2024-W53-1",
    "2020-W53-7", "2024-W00-1", "2024-W05-8", "2024-W05-0", "2024-W05-1T03:04:05Z", "2024-W05T03", "2024W05-1",
    "2020W53", "2024-05-1", "2024W051", "24-05-1", "2024 3", "2024-W05 Wed", "2024-W05 wednesday", "2024-W05 WEd",
    "2024-123", "2024-366", "2023-366", "2023-365T12:30Z", "2024-000", "2024-1234", "2024-12", "2024-1", "2024-12-",
    "2024-", "2024-001 Mon", "2024-001 Sun", "2024-366 Mon", "2024366", "2024-060T", "366 12", "366", "60",
    "10000-01-01", "9999-12-31T23:59:59.999Z", "0000-01-01", "0001-01-01", "-0001-01-01", "+2024-01-05", "2024-W01-1",
    " 2024-01-05 ", "\"2024-01-05\"", " \" 2024-01-05 \" ", "\"2024-01-05", "2024-01-05\n", "\t2024-01-05", " 2024",
    "\"2024\"", "2024\"", "2024 ", " 5", "2024-01-05\u00a0", "２０２４-01-05", "2024-01-05 03:04:05 x", "x2024-01-05",
    "[05/Jan/2024:03:04:05 +0000]", "05/Jan/2024:03:04:05 +0000", "5/JAN/2024:3:4:5 z", "05/jAN/2024:03:04:05 Z",
    "05/January/2024:03:04:05 -0800", "05/Sept/2024:03:04:05 Z", "05/Mai/2024:03:04:05 Z", "[05/Feb/2024:03:04:05 +0530]",
    "20240105030405678", "20240105030405", "202401050304056", "2024010503040567", "2024115", "20241105", "202411",
    "240105", "990105", "450105", "460105", "5 Jan 2024", "05 January 2024", "5 may 2024", "5 MAY 2024", "31 June 2024",
    "January 5, 2024", "Jan 5, 2024", "Jan 05 2024 03:04:05", "05-Jan-24", "05-Jan-99", "05-Jan-2024", "05Jan2024",
    "05Jan24", "Jan5", "jan", "December", "Fri, 05 Jan 2024 03:04:05 GMT", "Fri, 05 Jan 2024 03:04:05 +0100",
    "Mon, 05 Jan 2024 03:04:05 GMT", "Mon, 01 Jan 2023 03:04:05 GMT", "Friday, 5 January 2024", "FRIDAY, 5 January 2024",
    "Friday, 05 Jan 2024 03:04:05 EST", "Sun, 29 Feb 2024 03:04:05 GMT", "Sat, 31 Dec 2022 03:04:05 GMT",
    "Fri Jan 05 03:04:05 +0000 2024", "Fri Jan 05 03:04:05 PST 2024", "Fri Jan 05 2024 03:04:05 GMT+0100",
    "Fri 5 1 2024", "5 1 2024", "2024-01-05 5", "2024-01-05 1", "2024-01-05 Friday 03", "2024-01-05 Monday 03",
    "2024-01-05 03:04:05.678901", "2024-01-05 03:04:05,678", "2024-01-05 03:04:05.6", "2024-01-05 03:04:05.6789012",
    "03:04:05.6", "05.123456789012345678", "05.1234567890123456789", "3 PM", "12 AM", "12 PM", "0 PM", "13 PM", "3 pM",
    "0:30 PM", "11:30 am", "12:30 PM", "24:00", "0:15", "24:15", "1:15", "12:15", "11", "PM", "am", "15:00 AM", "3:00 PM",
    "0503", "05/01 03:04", "29/02 03:04", "30/02 03:04", "01-05", "02-29", "05 Jan", "29 Feb", "29 Feb Mon", "05 Jan Wed",
    "2024 AD", "2024 BC", "2024 bce", "2024 CE", "2024 Ad", "AD 2024-01-05", "BC 0044-03-15", "24 AD", "5 BC",
    "2024-01-05 {03:04}", "2024#01#05", "#2024.01.05", "2024'01", "2024 O'CLOCK 03", "unclosed 2024", "unclosed yyyy",
    "03 uhr 04", "äö 2024", "ÄÖ 2024", "2024年01月05日", "(2024)", "$2024^01*05+03?04|05\\67", "2024-01-0503:04:05",
    "030405 20240105", "+01:00 05", "Z 05", "01052024", "050124", "0501240304", "0304", "0052024", "03:04:05 2024-01-05",
    "24:04:05 2024-01-05", "2024-1-5T3:4:5.6Z", "2024-1-5T3:4:5.67Z", "202405", "20245", "1", "12", "20241",
    "-2024-01-05", "2024--1-05", "2024-+1-05", "2024-01-+5", "2 Uhr 3", "1|2|3", "2024|01|05", "|||", "$1", "\\",
    // Texts that are nearly in the usual form.
    "-0000-01-01", "+0000-01-01 03:04:05", "00000-01-05", "000002024-01-05", "0000002024-01-05",
    "-000002024-01-05", "000010000-01-01", "010000-01-01", "-10000-01-01", "10001-01-01", "99999-01-01",
    "00024-01-05", "024-01-05", "4-01-05", "+4-1-5", "-4-1-5", "-0-1-5", "+-4-1-5", "++2024-01-05",
    "2024-1-05 03:04:5", "2024-01-005 03:04:05", "2024-01-05 3:04:05", "2024-01-05 003:04:05",
    "2024-01-05 03:04:5 ", "2024-01-05 03:04:05?", "?2024-01-05 03:04:05", "2024-01-05 03:04:05?~000",
    "2024-01-05 03:04:05\n", "2024-01-05\n03:04:05", "2024-01-05 03:04:05 \" ", "\"2024-01-05 03:04:05\"",
    "2024-01-05 03:04:0５", "２０２４-０１-０５ 03:04:05", "٢٠٢٤-01-05 03:04:05", "2024‐01‐05 03:04:05",
    "2024-01-05\u00a003:04:05", "2024-01-05 03:04:05\u2003", "2024-01-05 03:04:05.", "2024-01-05 03:04:05Z",
    "2024-01-05 03:04:60", "2024-01-05 23:59:61", "2024-01-05 24:00:01", "2024-06-31 03:04:05", "1900-02-29",
    "2000-02-29", "2100-02-29", "2024-01-05T03:04:05+17:59", "2024-01-05T03:04:05+18:00",
    "2024-01-05T03:04:05+18:01", "2024-01-05T03:04:05-18:00:01", "2024-01-05T03:04:05-23:59:59.999",
    "2024-01-05T03:04:05+00:00:00.001", "2024-01-05T03:04:05-00:00", "2024-01-05T03:04:05-2359",
    "2024-01-05T03:04:05+2400", "2024-01-05T03:04:05+1", "2024-01-05T03:04:05+01Z", "2024-01-05T03:04:05ZZ",
    "2024-01-05T03:04:05+0１:00", "2024-01-05T03:04:05−01:00", "2024-01-05T03:04:05+01:00[Europe/Paris]",
    "2024-01-05T03:04:05UTC", "2024-01-05T03:04:05UTC+01:00", "2024-01-05T03:04:05 Z", "2024-01-05T3:4:5Z",
    "2024-01-05T03:04:05.678Z", "2024-01-05T03:04:05.678+01:00", "2024-01-05T03:04:05.6+0100",
    "2024-01-05T03:04:05.678-23:30", "2024-01-05T03:04:05.Z", "2024-01-05t03:04:05.678z", "20240105T030405678Z",
    "20240105T030405678+0100", "20240105T0304056+0100", "20240105T03040567+19", "-20240105", "0240105",
    "00000105", "20240005", "20241301", "20240230", "20240105240000000", "20240105036005000", "20240105030460000",
    "2024010503040567８", " 20240105030405678 ", "+0240105030405678", "2024010503040567Z", "202401050304056.8",
    "05/JAN/2024:03:04:05 +0000", "05/jan/2024:03:04:05 Z", "05/Janu/2024:03:04:05 Z", "05/Ja/2024:03:04:05 Z",
    "05/january/2024:03:04:05 +0000", "05/JANuary/2024:03:04:05 +0000", "05/DEC/2024:23:59:59 -2330",
    "29/Feb/2023:03:04:05 +0000", "31/Apr/2024:03:04:05 +0000", "00/Jan/2024:03:04:05 +0000",
    "5/Jan/24:03:04:05 +0000", "05/Jan/2024:03:04:05", "05/Jan/2024:03:04:05+0000", "05/Jan/2024:03:04:05  +0000",
    "05/Jan/2024:03:04:05 +0000x", "05/Jan/2024:03:04:05 +00:00", "05/ Jan/2024:03:04:05 +0000",
    "05/ſep/2024:03:04:05 +0000", "05/Jan/2024:03:04:05 +0000?Jan01Feb02Mar03Apr04May05Jun06Jul07Aug08Sep09Oct10Nov11Dec12",
    "05/Jan/2024 03:04:05 UTC", "31/Mar/2024 02:30:00 Europe/Paris", "27/Oct/2024 02:30:00 Europe/Paris",
    "Sun, 31 Mar 2024 02:30:00 Europe/Paris", "Sun, 30 Mar 2024 02:30:00 Europe/Paris", "Mon, 31 Mar 2024 02:30:00 Europe/Paris",
    "Sun, 10 Mar 2024 02:30:00 PST", "Mon, 10 Mar 2024 02:30:00 EST", "Sun, 03 Nov 2024 01:30:00 EST",
    "fri, 05 jan 2024 03:04:05 GMT", "FRI, 05 JAN 2024 03:04:05 GMT", "fRI, 05 Jan 2024 03:04:05 GMT",
    "Fri, 05 Jan 2024 03:04:05 gmt", "Fri, 5 Jan 2024 3:4:5 GMT", "Fri, 05 Jan 2024 03:04:05 UTC+1", "Fri, 05 Jan 2024 03:04:05 -1930",
    "2024-091 02:30:00 Europe/Paris", "2024-301 02:30:00 Europe/Paris", "2024-001 00:00:00 Pacific/Apia",
    "2011-364 12:00:00 Pacific/Apia", "2024-W10-7 02:30:00 PST", "2024-W44-7 01:30:00 PST", "2024-05 Wed 03:04:05 +19:00",
    "2024-03-31 02:59:59 Europe/Paris", "2024-03-31 03:00:00 Europe/Paris", "2024-03-31 01:59:59 Europe/Paris",
    "2024-10-27 03:00:00 Europe/Paris", "2024-01-05 03:04:05 europe/paris", "2024-01-05 03:04:05 Europe/Pari",
    "2024-01-05 03:04:05 Europe/Parisx", "2024-01-05 03:04:05 GMT+1", "2024-01-05 03:04:05 GMT0", "2024-01-05 03:04:05 EST5EDT",
    "2024-01-05 03:04:05 SystemV/EST5", "2024-01-05 03:04:05 America/Argentina/Buenos_Aires",
    "005/01/2024 003:004:005", "0005/01/2024 03:04:05", "5/1/2024 3:4:5", "05012024 0304", "00501202 0304",
    "0052024 0304", "005012024 00003", "005012024 000304", "2024501", "2024512", "20245 1", "00000202451", "0000020245501",
    "152024", "1252024", "24:05 AM 2024", "024:05 PM 2024", "1:05 am 2024", "003 PM", "012 am", "0003:04", "0012:04",
    "01105 PM", "00005 am", "PM 3:04", "am 12:30", "AM 12:30", "pm 0:30", "0366 2024", "0366 2023", "366 2024", "060 2024",
    "24/01/05 PM 12", "99/12/31 am 12", "?2024?01", "2024~01;05", "2024;01;05",
  };

  public static void main(String[] arguments) {
    Locale.setDefault(Locale.ENGLISH);
    TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
    DateTimeZone.setDefault(DateTimeZone.UTC);
    StringBuilder out = new StringBuilder("{\n");
    out.append("\"year\": ").append(new DateTime().getYear()).append(",\n");

    Set<String> texts = new LinkedHashSet<>(Arrays.asList(TEXTS));
    for (String pattern : READ) {
      DateTimeFormatter formatter = formatter(pattern);
      for (int at = 0; at < 4; at++) {
        texts.add(formatter.print(MOMENTS[at]));
      }
    }
    List<String> rows = new ArrayList<>();
    for (String text : texts) {
      rows.add(quoted(text));
    }
    section(out, "texts", "[", rows, "]");

    rows = new ArrayList<>();
    for (String pattern : READ) {
      DateTimeFormatter formatter = formatter(pattern);
      rows.add(quoted(pattern) + ": " + table(texts, text -> formatter.parseMillis(stripped(text))));
    }
    section(out, "patterns", "{", rows, "}");

    rows = new ArrayList<>();
    for (String pattern : ODD) {
      rows.add(quoted(pattern));
    }
    section(out, "odd", "[", rows, "]");

    DateTimeFormatter auto = auto();
    rows = new ArrayList<>();
    rows.add("\"iso\": " + table(texts, JodaTimes::iso));
    rows.add("\"auto\": " + table(texts, text -> auto(auto, text)));
    rows.add("\"timestamp_parse\": " + table(texts, auto::parseMillis));
    section(out, "named", "{", rows, "}");

    rows = new ArrayList<>();
    for (long moment : MOMENTS) {
      rows.add(Long.toString(moment));
    }
    section(out, "moments", "[", rows, "]");

    rows = new ArrayList<>();
    for (String pattern : PRINTED) {
      DateTimeFormatter formatter = formatter(pattern);
      List<String> shown = new ArrayList<>();
      for (long moment : MOMENTS) {
        shown.add(quoted(formatter.print(moment)));
      }
      rows.add(quoted(pattern) + ": [" + String.join(", ", shown) + "]");
    }
    section(out, "printed", "{", rows, "}");

    // The zones that Joda reads; then the others of Java, by which Druid looks for the name of a zone.
    Set<String> joda = new TreeSet<>(DateTimeZone.getAvailableIDs());
    DateTimeFormatter zones = formatter("yyyy ZZZ");
    for (String name : joda) {
      zones.parseMillis("2024 " + name);
    }
    Set<String> java = new TreeSet<>(Arrays.asList(TimeZone.getAvailableIDs()));
    java.removeAll(joda);
    out.append("\"joda_zones\": ").append(quoted(String.join(" ", joda))).append(",\n");
    out.append("\"java_zones\": ").append(quoted(String.join(" ", java))).append("\n}\n");
    System.out.print(out);
  }

  interface Reader {
    long read(String text);
  }

  static DateTimeFormatter formatter(String pattern) {
    return DateTimeFormat.forPattern(pattern).withChronology(ISOChronology.getInstanceUTC());
  }

  /** Texts and their times; those that can't be read are left out. */
  static String table(Set<String> texts, Reader reader) {
    List<String> pairs = new ArrayList<>();
    for (String text : texts) {
      try {
        pairs.add(quoted(text) + ": " + reader.read(text));
      } catch (RuntimeException error) {
        // Druid counts the record as unparseable.
      }
    }
    return "{" + String.join(", ", pairs) + "}";
  }

  /** A text without spaces and quotes around it, as Druid reads it. */
  static String stripped(String text) {
    String found = text.trim();
    boolean isQuoted = found.charAt(0) == '"' && found.charAt(found.length() - 1) == '"';
    return isQuoted ? found.substring(1, found.length() - 1).trim() : found;
  }

  /** The format iso: ISO 8601, and else milliseconds. */
  static long iso(String text) {
    String found = stripped(text);
    try {
      return ISODateTimeFormat.dateTimeParser().withZoneUTC().parseMillis(found);
    } catch (IllegalArgumentException error) {
      return Long.parseLong(found);
    }
  }

  /** The format auto: digits are milliseconds; a zone's name behind a space is dropped. */
  static long auto(DateTimeFormatter formatter, String text) {
    if (text.chars().allMatch(each -> each >= '0' && each <= '9')) {
      return Long.parseLong(text);
    }
    String found = stripped(text);
    int space = found.lastIndexOf(' ');
    boolean hasZone =
        space > 0
            && Arrays.asList(TimeZone.getAvailableIDs()).contains(found.substring(space + 1));
    return formatter.parseMillis(hasZone ? found.substring(0, space) : found);
  }

  static DateTimeFormatter auto() {
    DateTimeParser separator =
        new DateTimeFormatterBuilder()
            .append(null, new DateTimeParser[] {literal('T'), literal(' ')})
            .toParser();
    DateTimeParser offset =
        new DateTimeFormatterBuilder().appendTimeZoneOffset("Z", true, 2, 4).toParser();
    DateTimeParser rest =
        new DateTimeFormatterBuilder()
            .append(separator)
            .appendOptional(ISODateTimeFormat.timeElementParser().getParser())
            .appendOptional(offset)
            .toParser();
    return new DateTimeFormatterBuilder()
        .append(ISODateTimeFormat.dateElementParser())
        .appendOptional(rest)
        .toFormatter()
        .withZoneUTC();
  }

  static DateTimeParser literal(char character) {
    return new DateTimeFormatterBuilder().appendLiteral(character).toParser();
  }

  static void section(StringBuilder out, String name, String open, List<String> rows, String close) {
    out.append(quoted(name)).append(": ").append(open).append("\n  ");
    out.append(String.join(",\n  ", rows)).append("\n").append(close).append(",\n");
  }

  static String quoted(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (char each : text.toCharArray()) {
      if (each == '"' || each == '\\') {
        out.append('\\').append(each);
      } else if (each < ' ' || each > '~') {
        out.append(String.format("\\u%04x", (int) each));
      } else {
        out.append(each);
      }
    }
    return out.append('"').toString();
  }

  private JodaTimes() {}
}
