"""Orders of partitions for a buffer of three, found by search, by the number of partitions; see orderings.py.

Each order starts with partitions 0, 1 and 2. Its text has two letters per swap, the partition that leaves and the one
that is loaded, with 'a' for partition 0. Made by fold(search_states(number, 3, attempts)) with 100 to 1000 attempts.
"""

from __future__ import annotations

FOUND_ORDERS: dict[int, str] = {
    4: "cdac",
    5: "ceadbcea",
    6: "cfbefdacefcbfe",
    7: "bgcdgfdeacfdcbdgef",
    8: "ahbfhgfegdcbefbadefhegadhb",
    9: "ciadihdghegfbdfcegcadfaigcihficeia",
    10: "cebdeidfigfhgjaijbhgbcgeihefcdhbdjbefgedgc",
    11: "afcgfjgkjekiedihbghcdkcikaieghekhdafkefjdcehjicfhjia",
    12: "blaklikjihjdhgdfgecbehbahdfkdjafkljifdibljbedgjlghlkeghbkibageah",
    13: "blcfljfkjdkhdihgimgealehmjhgjkgikdiblgbcdhcehfgdfjemdcmicbjeikbcefchkbhmbifk",
    14: "adchdehgengjnijmifmkflbdlnkmnamgafgifeijdfjneanhalhcfncilhnchgckgaieklejagjmlhgjmkhcjmke",
    15: ("cnafnlfglkgikeidejdojhombnmdhidgijgkjekoelocnkcdlodaohafhmkomifcigodcfgafmdgmeahgchfejfmcejleimhijhali"),
    16: (
        "anbenoepojpmjimhilhklfkdfgckghdnhonmobmjbejpeipaknajidjpdmplmglfnpfhgbhlbapjaflhfohgjiglidoeliebdfio"
        "baomaefhmahgabembdga"
    ),
    17: (
        "anclnklokfoifdimdpmhpqhjqejgbpgkejkfjnfdnqdcqlcolaoipqalieloenoknfkmfgqngemaejaijhnehcifcdeadlahlgfa"
        "gmhkaimgkoidoldjgmlojcmhokcdkjhcjg"
    ),
    18: (
        "cgangdnmdomiohiqhlqplrpjrejfekbrkifliolgomgqmcqncenaedahrlhedgefgafmanmjncjklekmciekijkfjhfpmepohqef"
        "qnopncpdfockdakpajodjgdkgqpnqhkahinjiqagqhjchigpcqpd"
    ),
    19: (
        "csbgsrgkrnkonpojpejiemihmdhldflqarqbfhbohjoijpilpnldnsdesmecrdcomiobiebpefpjfqjgqkdbkpgmpjmljolqonbp"
        "nkqhkshcpjckjosekgefgcokcmflmiksiqlmqnmfsenheifqhcieqlehcgljgnhijgicnm"
    ),
    20: (
        "bocmonmhnehpefpdfkdskqslqjlgjrgtriaoiptjpdjhdqhgqngknrkfrsfeslebogbklekdesdpshpfhtfctmcigeifmnftnjtc"
        "jrcqrbefbcqkcjkijlfcidlndsnhclhtsmtpmnprljrqjiqbnsbrimrjshmbjrhdbpridkphithbtmbqkdmtdptbqc"
    ),
    21: (
        "ctagtogkohknhsndsqdiquipumpemrejrljfbofalqajqnjenheshpsipdiudturtmrcodcjmejaenatnhtphrplrglfgkdrkhfa"
        "rjhpatjetlenlfnqfkqgkcprcngqnsqirjigsugfucfkjnkicmiunhugmihagfimatmstefceucaukamklsqmhlchtqlcilkteiu"
        "elkrlqreug"
    ),
    22: (
        "cdaodeohefhnftnmtsmjsqjgqkgpklprliruivbmvquoqfolfcldcrdkrakhanhinjipjepgmngjeljqlsqasoaroprcpkcukduv"
        "nkvldslisqifqjfhjohtoekltaeuahuihgivgoljvcjgcsguspuiodpedvecvtcatfivfqvpqgpjgraurtudjgthgqdthrtercqu"
        "cfegurgcfhrscpsvhtvfpstdfvdrve"
    ),
    23: (
        "atbptgplgiluioufojfwjewhenhdnsdqsmqkmvkrcsrmvumnupniptikthkbhwbgwogjoejfelfaspaelkeokbofbmfjmhjuhwuv"
        "wqvrqdpjdkrbkubvulvnlgntgqtiqajkanifnufluqlgqdgwkldowtomtbmrbhlwrqhfqtfntmniwhigmfgvftvdhudrtgregqea"
        "unabndboqmoedreamfairdfviadgabvigeboivonervorhnaowhewt"
    ),
    24: (
        "bhclhxldxtditriqrwqgwkgfkpfspesvenvunjuojmahmuopuvpkvdkgdfgefqesqxsjxwjrwtrntinbhkbsinsjnejueruprtpq"
        "txqwxowloclmkrmjcsjosxonxenlevlgvbgdbfrjfvdtvltplqpgqigmibjempbxptxgtogdoidwicepcdwndgnmpxmcxsclsugd"
        "umlsdtmwtbwubvufsxfbxovtoftlfnbwlmnvwqvfqumwftwctqudcbdlbiloinqfocnifviovpcioupx"
    ),
}
